"""Conversations of many turns."""

from __future__ import annotations

from hedgerow.chat.v1 import chat_pb2

WORDY = "Please make sure to answer all in order to help.  " * 30


def said(role: str, content: str) -> chat_pb2.Message:
    return chat_pb2.Message(role=chat_pb2.Role.Value(f"ROLE_{role.upper()}"), content=content)


def conversation(turns: int, length: int = 100) -> list[chat_pb2.Message]:
    spoken = [
        message
        for turn in range(turns)
        for message in (said("user", f"{turn}?" + "x" * length), said("assistant", f"{turn}." + "y" * length))
    ]
    return [said("system", "Be brief."), *spoken, said("user", "And now?")]


def chatter(turns: int) -> list[chat_pb2.Message]:
    """Turns of about a hundred words."""
    spoken = [
        message
        for turn in range(turns)
        for message in (said("user", f"{turn}? " + "word " * 50), said("assistant", f"{turn}. " + "word " * 50))
    ]
    return [said("system", "Be brief."), *spoken, said("user", "And now?")]
