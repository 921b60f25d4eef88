"""The tables of the closed world that the demo models know: countries, opposites, terms, words of stories."""

from __future__ import annotations

SYSTEM_PROMPT = "You are a small demo assistant. Answer briefly."
FALLBACK = (
    "I am a small demo model, so I only know capitals, arithmetic, opposites, time units, "
    "stories and latency terms. Point me at a real model for anything else."
)

CAPITALS = {
    "Argentina": "Buenos Aires",
    "Australia": "Canberra",
    "Austria": "Vienna",
    "Belgium": "Brussels",
    "Bolivia": "Sucre",
    "Brazil": "Brasilia",
    "Bulgaria": "Sofia",
    "Canada": "Ottawa",
    "Chile": "Santiago",
    "China": "Beijing",
    "Colombia": "Bogota",
    "Croatia": "Zagreb",
    "Cuba": "Havana",
    "Denmark": "Copenhagen",
    "Ecuador": "Quito",
    "Egypt": "Cairo",
    "Estonia": "Tallinn",
    "Ethiopia": "Addis Ababa",
    "Finland": "Helsinki",
    "France": "Paris",
    "Germany": "Berlin",
    "Ghana": "Accra",
    "Greece": "Athens",
    "Hungary": "Budapest",
    "Iceland": "Reykjavik",
    "India": "New Delhi",
    "Indonesia": "Jakarta",
    "Iran": "Tehran",
    "Iraq": "Baghdad",
    "Ireland": "Dublin",
    "Israel": "Jerusalem",
    "Italy": "Rome",
    "Jamaica": "Kingston",
    "Japan": "Tokyo",
    "Jordan": "Amman",
    "Kenya": "Nairobi",
    "Latvia": "Riga",
    "Lebanon": "Beirut",
    "Lithuania": "Vilnius",
    "Mexico": "Mexico City",
    "Mongolia": "Ulaanbaatar",
    "Morocco": "Rabat",
    "Nepal": "Kathmandu",
    "Norway": "Oslo",
    "Pakistan": "Islamabad",
    "Panama": "Panama City",
    "Paraguay": "Asuncion",
    "Peru": "Lima",
    "Poland": "Warsaw",
    "Portugal": "Lisbon",
    "Romania": "Bucharest",
    "Russia": "Moscow",
    "Senegal": "Dakar",
    "Serbia": "Belgrade",
    "Slovakia": "Bratislava",
    "South Korea": "Seoul",
    "Spain": "Madrid",
    "Sweden": "Stockholm",
    "Switzerland": "Bern",
    "Thailand": "Bangkok",
    "Tunisia": "Tunis",
    "Turkey": "Ankara",
    "Ukraine": "Kyiv",
    "Uruguay": "Montevideo",
    "Venezuela": "Caracas",
    "Vietnam": "Hanoi",
    "Zambia": "Lusaka",
    "Zimbabwe": "Harare",
}

CONTINENTS = {
    "South America": "Argentina Bolivia Brazil Chile Colombia Ecuador Paraguay Peru Uruguay Venezuela",
    "North America": "Canada Cuba Jamaica Mexico Panama",
    "Europe": "Austria Belgium Bulgaria Croatia Denmark Estonia Finland France Germany Greece Hungary Iceland "
    "Ireland Italy Latvia Lithuania Norway Poland Portugal Romania Russia Serbia Slovakia Spain "
    "Sweden Switzerland Ukraine",
    "Africa": "Egypt Ethiopia Ghana Kenya Morocco Senegal Tunisia Zambia Zimbabwe",
    "Asia": "China India Indonesia Iran Iraq Israel Japan Jordan Lebanon Mongolia Nepal Pakistan Thailand "
    "Turkey Vietnam",
    "Oceania": "Australia",
}
CONTINENT_OF = {country: name for name, group in CONTINENTS.items() for country in group.split()}
CONTINENT_OF["South Korea"] = "Asia"

OPPOSITES = {
    "hot": "cold",
    "big": "small",
    "fast": "slow",
    "light": "dark",
    "early": "late",
    "open": "closed",
    "full": "empty",
    "happy": "sad",
    "hard": "soft",
    "high": "low",
    "loud": "quiet",
    "new": "old",
    "near": "far",
    "rich": "poor",
    "strong": "weak",
    "true": "false",
    "up": "down",
    "wet": "dry",
    "wide": "narrow",
    "young": "old",
    "left": "right",
    "clean": "dirty",
    "cheap": "expensive",
    "deep": "shallow",
    "thick": "thin",
    "warm": "cool",
    "brave": "afraid",
    "simple": "complex",
}

GLOSSARY = {
    "latency": "Latency is the time between sending a request and receiving the response.",
    "throughput": "Throughput is the number of requests or tokens a system completes per second.",
    "tail latency": "Tail latency is the response time of the slowest requests, such as the p99.",
    "p99": "P99 is the latency that ninety-nine percent of requests stay under.",
    "p95": "P95 is the latency that ninety-five percent of requests stay under.",
    "time to first token": "Time to first token is how long a user waits before the first output token arrives.",
    "time per output token": "Time per output token is the average gap between generated tokens after the first.",
    "streaming": "Streaming sends each token to the client as soon as it is produced.",
    "speculative decoding": "Speculative decoding lets a small draft model propose tokens that a large model verifies in one step.",
    "prefix caching": "Prefix caching reuses the key value cache of a shared prompt prefix.",
    "semantic caching": "Semantic caching returns a stored answer when a new question means the same thing.",
    "continuous batching": "Continuous batching lets new requests join a running batch at every decoding step.",
    "dynamic batching": "Dynamic batching waits a few milliseconds to group requests into one batch.",
    "paged attention": "Paged attention stores the key value cache in fixed size blocks to avoid fragmentation.",
    "quantization": "Quantization stores weights in fewer bits to save memory and time.",
    "a circuit breaker": "A circuit breaker stops calls to a failing service until it recovers.",
    "load shedding": "Load shedding drops low priority requests so that important ones stay fast.",
    "a hedged request": "A hedged request is a second copy sent to another server when the first one is slow.",
    "a latency budget": "A latency budget splits the total time of a request among its stages.",
    "a deadline": "A deadline is the point in time after which a response is no longer useful.",
    "backpressure": "Backpressure tells a sender to slow down when the receiver is full.",
    "a cold start": "A cold start is the delay while a server loads its model before the first answer.",
    "warmup": "Warmup runs a few requests before real traffic so that caches and kernels are ready.",
    "connection pooling": "Connection pooling reuses open connections to avoid repeated handshakes.",
    "adaptive concurrency": "Adaptive concurrency raises or lowers the number of requests in flight from measured latency.",
    "a token bucket": "A token bucket limits the rate of requests while allowing short bursts.",
    "request deduplication": "Request deduplication lets identical concurrent requests share one execution.",
    "an embedding": "An embedding is a vector that places similar texts close together.",
    "a vector index": "A vector index finds the nearest embeddings to a query.",
    "model routing": "Model routing sends simple questions to a small model and hard ones to a large model.",
    "a service mesh": "A service mesh handles discovery, load balancing and retries between services.",
    "tracing": "Tracing records the time that each stage of a request takes.",
    "a span": "A span is one timed operation inside a trace.",
    "head of line blocking": "Head of line blocking is when one slow request delays all the requests behind it.",
    "graceful degradation": "Graceful degradation returns a simpler answer instead of an error.",
    "little's law": "Little's law says that requests in a system equal arrival rate times average time in the system.",
}

TIME_UNITS = {("minutes", "seconds"): 60, ("hours", "minutes"): 60, ("days", "hours"): 24, ("weeks", "days"): 7}
NUMBER_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
).split()
COLORS = "red green blue yellow orange purple black white".split()
SHAPES = "circle square triangle star cross ring".split()
ANIMALS = "fox owl bear rabbit turtle wolf mouse heron otter badger".split()
PLACES = "forest river mountain meadow harbor desert island valley".split()
THINGS = "lantern map bell kite key drum basket compass".split()
TRAITS = "curious patient clever quiet brave gentle stubborn cheerful".split()
CITIES = sorted(set(CAPITALS.values()))
WEATHER = "sunny rainy cloudy windy foggy snowy".split()
FILLER = (
    "table window garden music paper morning river winter coffee camera bottle silver engine market letter "
    "doctor planet summer yellow ticket bridge pocket"
).split()
