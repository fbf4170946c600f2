"""Writes the sample corpus: tests/assets/c4_test and tests/assets/c4_test_validation.

    python tools/make_corpus.py [FOLDER]      FOLDER takes the place of tests/assets

Stories, encyclopedia articles, instructions, dialogues, sums, diaries, letters and word lists in plain English, made from
templates and a small world of people, places and things. Each document keeps to its own entities and its numbers are right,
so a model has something to learn beyond the frequency of letters. The random numbers are our own: the files are the same
on every machine and with every version of Python, and a test compares them byte by byte.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRAINING = ("c4_test", 2026, 2000, 3_000_000)  # folder, seed, documents, bytes (about)
VALIDATION = ("c4_test_validation", 7, 140, 200_000)


class Random:
    """SplitMix64."""

    def __init__(self, seed):
        self.state = seed

    def bits(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    def between(self, low, high):
        return low + self.bits() % (high - low + 1)

    def choice(self, items):
        return items[self.bits() % len(items)]

    def sample(self, items, count):
        items = list(items)
        return [items.pop(self.bits() % len(items)) for _ in range(count)]

    def chance(self, percent):
        return self.bits() % 100 < percent


PEOPLE = [  # name, subject, object, possessive
    *((name, "she", "her", "her") for name in (
        "Anna", "Zoë", "Marta", "Ines", "Olga", "Priya", "Renée", "Sofía", "Lucy", "Hana", "Ayşe", "Grace", "Nadia", "Ruth", "Mei", "Ingrid")),
    *((name, "he", "him", "his") for name in (
        "Tom", "Jürgen", "Pavel", "Omar", "Luis", "Kofi", "André", "Sam", "Bjørn", "Daniel", "Hiro", "Mateo", "Walter", "Ravi", "Finn", "Peter")),
]
FAMILIES = "Baker Novák García Okafor Lindqvist Müller Rossi Tanaka Shaw Ferreira Kowalski Dubois Haddad O'Brien Singh Larsen".split()
PLACES = ["Alderford", "Bellmere", "Crow Hill", "Dunmarsh", "Eastwick", "Fairhaven", "Greystone", "Hollin", "Ironbridge", "Kestrel Bay",
          "Larkfield", "Mühlbach", "Northgate", "Orsova", "Pont-l'Évêque", "Quarry End", "Rosvik", "São Tiago", "Thornby", "Underwood", "Vale", "Westering"]
RIVERS = ["Aller", "Brenn", "Corse", "Dove", "Elm", "Farrow", "Glas", "Isk", "Lune", "Maren", "Orne", "Sable", "Tamar", "Wey"]
ANIMALS = ["fox", "heron", "goat", "grey cat", "donkey", "owl", "hedgehog", "sheepdog", "raven", "otter", "pony", "tortoise"]
THINGS = ["brass key", "red kite", "wooden flute", "silver watch", "blue lantern", "paper map", "leather book", "glass marble", "copper bell",
          "woollen scarf", "small compass", "clay jug", "bicycle lamp", "music box", "sewing needle", "telescope"]
ROOMS = ["attic", "kitchen", "garden shed", "cellar", "library", "workshop", "stable", "boathouse", "school hall", "bakery"]
FRUITS = ["apples", "pears", "plums", "cherries", "lemons", "walnuts", "oranges", "figs", "quinces", "chestnuts"]
TRADES = ["baker", "carpenter", "teacher", "ferryman", "doctor", "gardener", "clockmaker", "fisher", "librarian", "weaver", "postman", "beekeeper"]
WEATHER = ["rain", "fog", "bright sun", "a light wind", "snow", "thunder", "a clear sky", "drizzle", "frost", "heavy cloud"]
MOODS = ["happy", "tired", "curious", "worried", "proud", "quiet", "cheerful", "patient", "hungry", "calm"]
MATERIALS = ["oak", "granite", "red brick", "limestone", "pine", "slate"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
EMOJI = ["🙂", "🎉", "🌧️", "🌞", "🍎", "🐈", "🚲", "📚", "❤️", "👍🏽", "👩‍🌾", "🇳🇴"]
NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()


def fill(random, template, world):
    """Replaces {name} by world["name"] and [a|b|c] by one of its parts; sentences begin with a capital, vowels have `an`."""
    template = re.sub(r"\[([^\[\]]*\|[^\[\]]*)\]", lambda found: random.choice(found.group(1).split("|")), template)
    text = re.sub(r"\{(\w+)\}", lambda found: str(world[found.group(1)]), template)
    text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
    return re.sub(r"(^|[.!?] )(\w)", lambda found: found.group(1) + found.group(2).upper(), text)


def person(random, key, world, people):
    name, subject, obj, possessive = people.pop()
    world.update({key: name, key + "_he": subject, key + "_him": obj, key + "_his": possessive})


def make_world(random):
    people = random.sample(PEOPLE, 4)
    places = random.sample(PLACES, 3)
    world = {"place": places[0], "town": places[1], "far": places[2], "river": random.choice(RIVERS), "family": random.choice(FAMILIES),
             "animal": random.choice(ANIMALS), "room": random.choice(ROOMS), "trade": random.choice(TRADES), "weather": random.choice(WEATHER),
             "mood": random.choice(MOODS), "material": random.choice(MATERIALS), "month": random.choice(MONTHS), "day": random.choice(DAYS)}
    world["thing"], world["other"] = random.sample(THINGS, 2)
    world["fruit"], world["nuts"] = random.sample(FRUITS, 2)
    for key in ("hero", "friend", "elder", "child"):
        person(random, key, world, people)
    return world


STORY_OPENINGS = [
    "[Once, in|Many years ago, in|In the winter of a hard year, in] {place}, there lived a {trade} called {hero}. {hero} had [a small house|two rooms|a narrow house] beside the river {river} and a {animal} that followed {hero_him} everywhere.",
    "{hero} {family} was [the youngest|the eldest|the only] {trade} in {place}. Every {day} {hero_he} walked to the market with {hero_his} friend {friend}, and every {day} the two of them came home [late|with full baskets|singing].",
    "On the first {day} of {month}, {hero} found a {thing} in the {room}. Nobody in {place} knew [whose it was|how it had come there|how old it was], not even {elder}, who knew almost everything.",
]
STORY_MIDDLES = [
    "One morning the {thing} was gone. {hero} looked [under the bed|behind the stove|in every drawer] and in the {room}, but it was not there. \"{friend},\" said {hero}, \"have you seen my {thing}?\"",
    "\"I have not seen it,\" said {friend}, \"but there was {weather} last night, and the door of the {room} stood open.\" {hero} was {mood}. {hero_he} put on {hero_his} coat and went out to look.",
    "They followed the road along the {river} until they came to {town}. There they met {elder}, an old {trade}, who was mending a wall of {material}. \"Ask the {animal},\" said {elder}. \"It sees more than we do.\"",
    "The {animal} looked at {hero} for a long time. Then it turned and walked slowly [up the hill|into the wood|towards the bridge], and {hero} and {friend} went after it.",
    "By noon there was {weather} over {town}. {friend} shared {friend_his} bread and some {fruit}, and they rested under a tree. \"What will you do if we do not find it?\" asked {friend}. \"Then I shall make another,\" said {hero}, \"but I would rather find the old one.\"",
    "In the {room} of an empty house they found a {other}, but not the {thing}. \"This is not mine,\" said {hero}, and {hero_he} left it where it was.",
    "A child called {child} came running down the path. \"Are you looking for something?\" {child_he} asked. \"Yes,\" said {hero}. \"A {thing}.\" {child} laughed. \"Then come with me,\" {child_he} said.",
    "At night they heard [a low sound|footsteps|a bell] from the river. {hero} lit a lamp. It was only {elder}, who had come with a warm coat and a jug of soup. \"Nobody should search with an empty stomach,\" said {elder}.",
    "{hero} thought about the [summer|winter|day] when {hero_he} had first come to {place}. {hero_he} had owned nothing but a {other} then, and {hero_he} had been {mood} all the same.",
]
STORY_ENDINGS = [
    "And there it was: the {thing} lay in the grass where the {animal} had carried it. {hero} picked it up and held it to the light. \"Thank you,\" {hero_he} said to the {animal}, and from that day there was always a dish of milk in front of the {room}.",
    "{child} had found the {thing} on the road and had kept it safe. {hero} gave {child_him} the {other} in return, and everyone went home to {place} before dark. {friend} still tells the story, and each time the road to {town} grows a little longer.",
    "In the end the {thing} was not lost at all. It hung behind the door of the {room}, where {hero} {hero_his}self had put it. {friend} laughed until {friend_he} cried, and then {hero} laughed too.",
]


def story(random, world):
    world = dict(world, hero_hisself="himself" if world["hero_he"] == "he" else "herself")
    endings = [ending.replace("{hero_his}self", "{hero_hisself}") for ending in STORY_ENDINGS]
    middles = [STORY_MIDDLES[i] for i in sorted(random.sample(range(len(STORY_MIDDLES)), random.between(2, len(STORY_MIDDLES))))]
    parts = [random.choice(STORY_OPENINGS), *middles, random.choice(endings)]
    title = fill(random, "[The {thing}|{hero} and the {animal}|The road to {town}|A {trade} of {place}]", world)
    return "\n\n".join([title, *(fill(random, part, world) for part in parts)])


def encyclopedia(random, world):
    founded, now = random.between(1050, 1800), random.between(1950, 2020)
    people, height, length = random.between(3, 900) * 100, random.between(20, 1900), random.between(12, 800)
    world = dict(world, founded=founded, now=now, age=now - founded, people=f"{people:,}", more=f"{people + people // 10:,}", height=height,
                 length=length, north=random.choice(["north", "south", "east", "west"]), bridge=founded + random.between(20, 150))
    sentences = [
        "{place} is a [town|village|small city] on the river {river}, {height} metres above the sea. In {now} it had {people} inhabitants.",
        "It was founded in {founded}, so in {now} it was {age} years old. Its oldest building is the [church|mill|town hall|market hall], which is made of {material}.",
        "The {river} is {length} kilometres long. It rises in the hills to the {north} of {far} and flows through {town} before it reaches {place}.",
        "The first bridge over the {river} was built in {bridge}. It was made of {material} and stood until a flood in the month of {month}.",
        "{place} is known for its {fruit} and {nuts}. Every {month} there is a market where they are sold, and on the last {day} of the market the best {trade} of the year is chosen.",
        "The {animal} is the symbol of the town. According to a legend, a {animal} once led a {trade} called {hero} {family} through {weather} to the place where the market stands today.",
        "The writer {friend} {family} was born in {place}. {friend_his} best known book, \"The {thing}\", tells of a journey from {place} to {town}.",
        "Between {now} and the next census the number of inhabitants grew by one tenth, to {more}. Most of them work in {town}, which is reached by [train|bus|ferry].",
        "The climate is mild. In {month} there is often {weather}; the rest of the year is [dry|cool|windy|warm].",
    ]
    keep = [sentences[i] for i in sorted({0, 1, *random.sample(range(2, len(sentences)), random.between(2, 7))})]
    text = " ".join(fill(random, sentence, world) for sentence in keep)
    if random.chance(50):
        text += "\n\n" + fill(random, "Facts\n- Name: {place}\n- River: {river} ({length} km)\n- Height: {height} m\n- Founded: {founded}\n- Inhabitants: {people} ({now})", world)
    return world["place"] + "\n\n" + text


RECIPES = [
    ("{fruit} cake", ["{n} {fruit}", "{g} g of flour", "{half} g of butter", "a pinch of salt"],
     ["Wash the {fruit} and cut them into pieces.", "Mix the flour with the butter until it looks like sand.", "Add the {fruit} and the salt and stir slowly.",
      "Put everything into a round tin.", "Bake it for {minutes} minutes at {heat} °C.", "Let the cake rest before you cut it."]),
    ("{fruit} soup", ["{n} {fruit}", "{g} ml of water", "one onion", "a spoon of honey"],
     ["Peel the {fruit} and the onion.", "Bring the water to the boil.", "Cook the {fruit} in it for {minutes} minutes.", "Add the honey and taste.", "Serve the soup hot, with bread."]),
    ("a shelf of {material}", ["{n} boards of {material}", "{half} screws", "a saw", "a drill"],
     ["Measure the wall and mark the height.", "Saw the boards to {g} millimetres.", "Drill a hole every {minutes} millimetres.", "Screw the boards to the wall.", "Check that the shelf is level.",
      "Do not put anything heavy on it for one day."]),
    ("a {thing} as a present", ["one {thing}", "{g} mm of ribbon", "some paper", "glue"],
     ["Clean the {thing} with a dry cloth.", "Wrap it in the paper, first the long side and then the short side.", "Glue the ends and wait {minutes} minutes.", "Tie the ribbon around it.",
      "Write the name of your friend on the paper."]),
]


def instructions(random, world):
    grams = random.between(4, 40) * 20
    world = dict(world, n=random.choice(NUMBERS[2:]), g=grams, half=grams // 2, minutes=random.between(2, 12) * 5, heat=random.between(15, 22) * 10)
    title, needs, steps = random.choice(RECIPES)
    lines = [fill(random, "How to make " + title, world), "", "You need:"]
    lines += ["- " + fill(random, need, world) for need in needs]
    lines += ["", *(f"{number}. " + fill(random, step, world) for number, step in enumerate(steps, 1))]
    hint = "\nHint: {elder}, a {trade} from {place}, says that [patience is half of the work|good tools are worth their price|one should never hurry|the second try is always better]."
    return "\n".join(lines) + fill(random, hint, world)


def dialogue(random, world):
    price, count = random.between(2, 9), random.between(2, 12)
    paid = price * count + random.between(0, 3) * 5
    change = paid - price * count
    world = dict(world, price=price, count=count, cost=price * count, paid=paid, change=change, smile=random.choice(EMOJI))
    scenes = [
        ["{hero}: Good morning! Do you have any {fruit} today?", "{friend}: Good morning, {hero}. Yes, they came from {town} this morning. They cost {price} crowns each.",
         "{hero}: Then I take {count}, please.", "{friend}: That makes {cost} crowns.", "{hero}: Here are {paid}.",
         "{friend}: [Thank you|Many thanks]. " + ("You get {change} crowns back." if change else "That is exactly right."), "{hero}: Goodbye, {friend}! {smile}"],
        ["{elder}: What is the capital of this valley, {child}?", "{child}: I think it is {place}.", "{elder}: Right. And which river flows through {place}?", "{child}: The {river}.",
         "{elder}: Very good. Is it longer than the road to {far}?", "{child}: I do not know. May I look at the map?", "{elder}: You may. It is in the {room}, next to the {thing}."],
        ["{hero}: Where are you going, {friend}?", "{friend}: To {town}. My {animal} has run away again.", "{hero}: In this weather? There is {weather} on the hills.",
         "{friend}: I know. But {elder} saw it on {day} near the {river}.", "{hero}: Then I come with you. Two see more than one.", "{friend}: You are a good friend, {hero}. {smile}"],
    ]
    chosen = random.sample(scenes, random.between(1, 3))
    return "\n\n".join("\n".join(fill(random, line, world) for line in scene) for scene in chosen)


def sum_line(random):
    a, b = random.between(2, 99), random.between(2, 99)
    return random.choice([f"{a} + {b} = {a + b}", f"{a + b} - {a} = {b}", f"{a % 12 + 1} x {b % 12 + 1} = {(a % 12 + 1) * (b % 12 + 1)}",
                          f"{(a % 12 + 1) * (b % 12 + 1)} / {b % 12 + 1} = {a % 12 + 1}"])


def arithmetic(random, world):
    lines = ["Exercises in arithmetic", ""]
    for number in range(1, random.between(3, 14)):
        a, b, c = random.between(3, 40), random.between(2, 20), random.between(2, 9)
        problem = random.choice([
            f"{world['hero']} has {a} {world['fruit']} and buys {b} more. How many {world['fruit']} does {world['hero']} have? Answer: {a} + {b} = {a + b}.",
            f"There are {a + b} {world['nuts']} in the {world['room']}. {world['friend']} takes {b} of them. How many are left? Answer: {a + b} - {b} = {a}.",
            f"A {world['trade']} works {c} hours a day. How many hours does {world['elder']}, a {world['trade']}, work in {b} days? Answer: {c} x {b} = {c * b}.",
            f"{c * b} {world['fruit']} are shared by {c} children. How many does each child get? Answer: {c * b} / {c} = {b}.",
            "; ".join(sum_line(random) for _ in range(random.between(3, 6))) + "."])
        lines.append(f"{number}. {problem}")
    return "\n".join(lines)


def diary(random, world):
    month, day, year = random.between(0, 11), random.between(1, 14), random.between(1890, 2020)
    weekday = random.between(0, 6)
    entries = []
    for offset in range(random.between(2, 12)):
        today = dict(world, weather=random.choice(WEATHER), mood=random.choice(MOODS), fruit=random.choice(FRUITS), room=random.choice(ROOMS), hours=random.choice(NUMBERS[2:]))
        head = f"{DAYS[(weekday + offset) % 7]}, {day + offset} {MONTHS[month]} {year}."
        body = random.sample([
            "Today there was {weather}.", "I worked in the {room} for {hours} hours.", "{friend} came [in the evening|at noon|before breakfast] and brought {fruit}.",
            "I feel {mood}.", "The {animal} slept all day.", "We walked to {town} and back along the {river}.", "I still cannot find the {thing}.",
            "{elder} told us about the old days in {place}.", "A letter came from {far}.", "Nothing happened, and that was good."], random.between(2, 7))
        entries.append(head + " " + " ".join(fill(random, sentence, today) for sentence in body))
    return "\n\n".join(entries)


FOREIGN = [
    ("French", "Merci beaucoup, et à bientôt !", "Many thanks, and see you soon!"), ("German", "Schöne Grüße aus den Bergen.", "Kind regards from the mountains."),
    ("Spanish", "¿Cuándo vienes a casa, mañana?", "When do you come home, tomorrow?"), ("Polish", "Zażółć gęślą jaźń.", "A sentence with all our letters."),
    ("Russian", "Доброе утро, дорогой друг!", "Good morning, dear friend!"), ("Greek", "Καλημέρα, τι κάνεις;", "Good morning, how are you?"),
    ("Chinese", "今天天气很好。", "The weather is very good today."), ("Japanese", "猫は窓のそばで寝ています。", "The cat is sleeping by the window."),
    ("Korean", "내일 다시 만나요.", "Let us meet again tomorrow."), ("Turkish", "Güle güle, yolun açık olsun.", "Goodbye, may your road be open."),
    ("Hindi", "आप कैसे हैं?", "How are you?"), ("Arabic", "السلام عليكم", "Peace be upon you"),
]


def letter(random, world):
    language, phrase, meaning = random.choice(FOREIGN)
    world = dict(world, language=language, phrase=phrase, meaning=meaning, smile=random.choice(EMOJI), date=random.between(1, 28))
    body = random.sample([
        "Thank you for your letter of {date} {month}. It came on {day} and I read it [twice|at once|in the {room}].",
        "Here in {place} there has been {weather} for a week. The {river} is high, and the road to {town} is closed.",
        "I am learning {language} now. My teacher, {elder}, says: \"{phrase}\" That means: \"{meaning}\"",
        "Do you remember the {thing} that we looked for in {far}? {friend} has found one just like it and has put it in the {room}.",
        "The {animal} is well and eats too many {fruit}.",
        "In {month} I shall come to {town}. Shall I bring some {nuts}? I could also bring the {other}, if you still want it."], random.between(3, 6))
    lines = [fill(random, "{place}, {date} {month}", world), "", fill(random, "Dear {child},", world), ""]
    lines += [fill(random, paragraph, world) for paragraph in body]
    return "\n".join(lines) + fill(random, "\n\n[Yours|With love|Kind regards],\n{hero} {family} {smile}", world)


def word_list(random, world):
    lines = [fill(random, "A small phrase book, written by {hero} {family} in {place}", world), ""]
    for language, phrase, meaning in random.sample(FOREIGN, random.between(3, len(FOREIGN))):
        lines.append(f"{language}: {phrase} = {meaning}")
    return "\n".join(lines)


def note(random, world):
    return fill(random, "[Lost: a {thing}, between {place} and {town}, on {day}. Please bring it to {hero} {family}.|For sale: one {other}, nearly unused, and {fruit} by the basket. "
                        "Ask for {friend} in the {room}.|The {trade} of {place} is away until {day}. Letters may be left with {elder}.]", world)


# Kind and how many of 100 documents are of it.
KINDS = [(story, 30), (encyclopedia, 20), (instructions, 10), (dialogue, 10), (arithmetic, 8), (diary, 8), (letter, 8), (word_list, 2), (note, 4)]


def document(random, target):
    """Parts of the same kind until about `target` characters are there."""
    kind = random.choice([kind for kind, share in KINDS for _ in range(share)])
    text = kind(random, make_world(random))
    while len(text) < target and kind is not note:
        text += "\n\n" + kind(random, make_world(random))
    return text


def corpus(seed, documents, size):
    random = Random(seed)
    lines = []
    written = 0
    for number in range(documents):
        mean = max(200, (size - written) // (documents - number))
        target = min(5000, random.between(0, 8) ** 2 * mean // 44)  # many short documents, a few long ones
        lines.append(json.dumps({"id": number, "text": document(random, target)}, ensure_ascii=False))
        written += len(lines[-1].encode()) + 1
    return "\n".join(lines) + "\n"


def main(folder=ROOT / "tests" / "assets"):
    for name, seed, documents, size in (TRAINING, VALIDATION):
        path = pathlib.Path(folder) / name / "data.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(corpus(seed, documents, size).encode())
        print(f"{path}: {documents} documents, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
