"""Speech to text as a service of its own.

servicer.py     a recording goes to `recordings`, a stream to `audio_buffer` and `listener`
recordings.py   decoded (`audio_decoding`), packed into windows (`packing`), transcribed, cut into `sentences`
listener.py     utterances (`endpointer`), whose words are confirmed (`confirmation`)
scheduler.py    which piece of work the model does next
whisper.py      the model, behind `engine`; its parts: `whisper_parts`
"""
