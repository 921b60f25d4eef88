"""What a guard looks for in a text, and how a text is looked through while it is written: pure rules, which know no
request and no stage. What secrets and personal data are, `services/runtime/security/private_data.py` knows.
"""
