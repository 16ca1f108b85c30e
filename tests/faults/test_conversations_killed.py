"""Writers of conversations that are killed at random instants: whoever looks next finds each
conversation as it was or as it was to be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import ENGINES, Place, address_of, open_corpus
from talks import assert_whole, numbers

# Imports once, then forks a child for each attempt, so that a kill costs the attempt and not the
# start of Python. The child writes version after version until it is killed; after each kill
# another child looks at what is there.
SERVER = """
import json, os, random, signal, sys, time
task = json.loads(sys.argv[1])
import unspool
from unspool.domain.conversations import Conversation, Message
from unspool.index import follower as writing
from unspool.embedders import open_embedder
open_embedder("static").embed_query("warm")
writing.PAGE, writing.COMMIT_EVERY = 10, 20
chance = random.Random(task["seed"])

def opened():
    return unspool.open(settings=unspool.Settings.load(arguments={"database": task["database"]}, environment={}))

def messages(version, of):
    kept = [f"walrus {number}" for number in range(version % 7)]
    return [*kept, *(f"penguin {of} version {version} of {number}" for number in range(20))]

def conversation(version, of):
    said = [Message(text=text) for text in messages(version, of)]
    return Conversation(id=f"c{of}", title=f"Title {version % 2}", messages=said, metadata={"v": version})

def write(attempt):
    with opened() as corpus:
        for version in range(attempt * 1000, attempt * 1000 + 1000):
            corpus.conversations.save(conversation(version, 0), conversation(version, 1))
            corpus.conversations.append("c1", Message(text=f"tail {version}"), Message(text=f"end {version}"))
            corpus.conversations.append("log", Message(text=f"line {version}"))
            if version % 3 == 2:
                corpus.conversations.delete("c0")
            os.write(written[1], b".")

def look(attempt):
    with opened() as corpus:
        first, second = corpus.conversations.get("c0"), corpus.conversations.get("c1")
        if second is None:
            assert first is None
            return
        version = second.metadata["v"]
        texts = [message.text for message in second.messages]
        assert texts in (messages(version, 1), [*messages(version, 1), f"tail {version}", f"end {version}"]), texts
        assert second.title == f"Title {version % 2}"
        if first is None:
            assert version % 3 == 2
        else:
            assert [message.text for message in first.messages] == messages(version, 0), "both are saved or none"
        log = corpus.conversations.get("log")
        lines = [] if log is None else [int(message.text.split()[1]) for message in log.messages]
        assert lines == sorted(set(lines))
        found = corpus.search("penguin version", projects="conversations", where={"conversation": "c1"}, limit=100)
        assert {hit.chunk.text for hit in found.hits} <= set(texts)

def child(work, attempt):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work(attempt)
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

killed = []
for attempt in range(task["kills"]):
    written = os.pipe()
    pid = child(write, attempt)
    os.close(written[1])  # so that a child that ends by itself is noticed
    for _ in range(chance.randint(1, 4)):  # after so many versions, somewhere within the next two
        begun = time.monotonic()
        os.read(written[0], 1)
    time.sleep(chance.uniform(0, 2 * (time.monotonic() - begun)))
    os.kill(pid, signal.SIGKILL)
    killed.append(ended(pid))
    looked = ended(child(look, attempt))
    if looked:
        break
print(json.dumps({"killed": killed, "looked": looked}))
"""
KILLS = 5


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_killed_writer_leaves_each_conversation_whole(database: Place, tmp_path: Path) -> None:
    task = {"seed": 1, "kills": KILLS, "database": address_of(database)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SERVER, json.dumps(task)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"killed": [-9] * KILLS, "looked": 0}, done.stderr
    with open_corpus(database) as corpus:
        texts = corpus.conversations.get("log")
        assert texts is not None and len(texts.messages) >= KILLS
        assert len(
            numbers(corpus, "line", where={"conversation": "log"}, alpha=0, limit=500)
        ) == min(len(texts.messages), 500)
    assert_whole(database)
