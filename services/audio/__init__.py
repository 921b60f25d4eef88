"""Speech to text as a service of its own.

servicer.py     a recording goes to `recordings`, a stream to `stream_reader` and `listener`
recordings.py   decoded (`audio_decoding`), packed into windows (`packing`), transcribed, cut into `sentences`
listener.py     utterances (`endpointer`) in overlapping `windows`, whose words are confirmed (`agreement`)
scheduler.py    which piece of work the model does next
whisper.py      the model, behind `engine`; its parts: `whisper_parts`
"""
