"""Parsing of Dockerfiles, by tables of cases."""

from __future__ import annotations

import pytest

from moorage.runtime.images.dockerfile import ignore, parser, patterns, stages, words
from moorage.runtime.images.dockerfile import instructions as ins
from moorage.runtime.images.dockerfile.errors import DockerfileError

PLATFORM = {"TARGETPLATFORM": "linux/amd64", "BUILDPLATFORM": "linux/amd64", "TARGETARCH": "amd64"}
ENV = {"a": "foo.tar.gz", "empty": "", "x": "1"}
EXPANSIONS = {
    "plain": "plain",
    "$a": "foo.tar.gz",
    "${a}": "foo.tar.gz",
    "$a.b": "foo.tar.gz.b",
    "$missing|": "|",
    "\\$a": "$a",
    "'$a'": "$a",
    '"$a"': "foo.tar.gz",
    '"\\$a \\" \\x"': '$a " \\x',
    "a\\ b": "a b",
    "${missing:-d}": "d",
    "${empty:-d}": "d",
    "${empty-d}": "",
    "${missing-d}": "d",
    "${a:+yes}": "yes",
    "${empty:+yes}": "",
    "${empty+yes}": "yes",
    "${missing:-${a}}": "foo.tar.gz",
    "${missing:-${other:-deep}}": "deep",
    "${x:?needed}": "1",
    "${a%.*}": "foo.tar",
    "${a%%.*}": "foo",
    "${a#*.}": "tar.gz",
    "${a##*.}": "gz",
    "${a/o/0}": "f0o.tar.gz",
    "${a//o/0}": "f00.tar.gz",
    "${a/tar*/}": "foo.",
    "$": "$",
    "$/": "$/",
    "100%": "100%",
}
BAD_WORDS = ("'open", '"open', "${a", "${", "${}", "${a!b}", "${missing:?is needed}", "${a/x")
IGNORE = """
# comment
node_modules
*.md
!README.md
**/*.pyc
build/**/tmp
/rooted
docs/
!docs/keep
**/cache[0-9]
"""
IGNORED = ("node_modules", "node_modules/a/b", "a.md", "x.pyc", "q/w/x.pyc", "build/tmp", "build/a/b/tmp/f", "rooted",
           "docs/a", "q/cache7")  # fmt: skip
KEPT = ("src/node_modules2", "README.md", "sub/a.md", "x.py", "build/a", "docs/keep", "docs/keep/inner", "q/cachex")
BAD_FILES = {
    "": (1, "no instructions"),
    "# only a comment\n": (1, "no instructions"),
    "RUN true": (1, "first instruction should be FROM"),
    "ARG a\n": (1, "no FROM"),
    "FROM a\n\nRUM true": (3, "unknown instruction RUM (did you mean RUN?)"),
    "FROM a AS": (1, "should be `FROM image`"),
    "FROM a AS 1x": (1, "stage name '1x'"),
    "FROM a AS b\nFROM c AS b": (2, "used twice"),
    "ARG v\nFROM $v": (2, "is empty"),
    "FROM --platform=windows/amd64 a": (1, "this machine is linux/amd64"),
    "FROM a\nCOPY x": (2, "at least one source and a target"),
    "FROM a\nCOPY --form=b x y": (2, "unsupported flag --form"),
    "FROM a\nCOPY --from=b --from=c x y": (2, "given twice"),
    "FROM a\nCOPY --from x y": (2, "has no value"),
    "FROM a\nCOPY --from=7 x y": (2, "there is no stage 7"),
    "FROM a AS b\nCOPY --from=b x y": (2, "copies from itself"),
    "FROM a AS b\nCOPY --from=c x y\nFROM a AS c\nCOPY --from=b x y\nFROM c": (3, "circle: c -> b -> c"),
    "FROM a\nCOPY --from=$b x y": (2, "cannot have a variable"),
    "FROM a\nENV x": (2, "has no value"),
    "FROM a\nENV x=1 y": (2, "should be y=value"),
    "FROM a\nARG 1x=2": (2, "not the name of a variable"),
    "FROM a\nRUN": (2, "needs a command"),
    'FROM a\nRUN ["a", 1]': (2, "should be strings"),
    "FROM a\nRUN --mount=type=ssh true": (2, "type=ssh is not supported"),
    "FROM a\nRUN --mount=type=cache true": (2, "needs a target"),
    "FROM a\nRUN --mount=type=bind,target=/x,colour=red true": (2, "unsupported option 'colour'"),
    "FROM a\nRUN --security=insecure true": (2, "never run with privileges"),
    "FROM a\nRUN --network=host true": (2, "--network=host is not supported"),
    "FROM a\nRUN <<EOF\nx": (2, "has no end"),
    "FROM a\nSHELL bash": (2, "needs the JSON form"),
    "FROM a\nONBUILD FROM b": (2, "cannot be a trigger"),
    "FROM a\nONBUILD COPY x": (2, "at least one source"),
    "FROM a\nHEALTHCHECK --interval=often CMD x": (2, "should be a duration"),
    "FROM a\nHEALTHCHECK curl": (2, "HEALTHCHECK CMD command"),
    "# escape=x\nFROM a": (1, "escape character"),
    "# syntax=example.com/frontend\nFROM a": (1, "the syntax 'example.com/frontend' is not supported"),
    "FROM a\nADD --keep-git-dir x y": (2, "does not clone"),
    "FROM a\0b": (1, "NUL"),
}  # fmt: skip


def load(text: str, target: str = "", **args: str) -> stages.Dockerfile:
    return stages.load(text, args, PLATFORM, target)


def only(text: str) -> ins.Instruction:
    [each] = load(f"FROM a\n{text}").target.instructions
    return each


def test_words_are_expanded_with_quotes_and_modifiers(subtests: pytest.Subtests) -> None:
    for text, wanted in EXPANSIONS.items():
        with subtests.test(text):
            assert words.expand(text, ENV) == wanted


def test_words_with_open_quotes_or_bad_substitutions_are_refused(subtests: pytest.Subtests) -> None:
    for text in BAD_WORDS:
        with subtests.test(text), pytest.raises(words.BadWord):
            words.expand(text, ENV)


def test_bad_files_are_refused_with_the_line(subtests: pytest.Subtests) -> None:
    for text, (line, why) in BAD_FILES.items():
        with subtests.test(text):
            with pytest.raises(DockerfileError) as caught:
                load(text)
            assert (caught.value.line, why in caught.value.why) == (line, True), str(caught.value)


def test_dockerignore_rules_decide_by_the_last_match(subtests: pytest.Subtests) -> None:
    rules = ignore.parse(IGNORE)
    for path in (*IGNORED, *KEPT):
        with subtests.test(path):
            assert rules.is_ignored(path) is (path in IGNORED)


def test_a_pattern_with_many_wildcards_takes_linear_time() -> None:
    tokens = patterns.parse("*a" * 50 + "b", is_path=True)

    assert not patterns.matches(tokens, "a" * 2_000)


def test_continuation_lines_skip_comments_and_empty_lines() -> None:
    run = only("RUN one \\\n  # comment\n\n  && two   \\\n  && three")

    assert isinstance(run, ins.Run)
    assert run.command.words == ("one   && two     && three",)
    assert run.line == 2


def test_the_escape_directive_changes_continuation_and_quotes() -> None:
    file = load("# escape=`\nFROM a\nCOPY a `\n  c:\\x\nENV p=a` b")

    copy, env = file.target.instructions
    assert isinstance(copy, ins.Copy)
    assert copy.target == "c:\\x"
    assert isinstance(env, ins.Env)
    assert words.expand(env.pairs[0][1], {}, file.escape) == "a b"


def test_heredocs_of_run_and_copy() -> None:
    file = load('FROM a\nCOPY <<one <<-"two" /x/\nbody $a\none\n\t$raw\n\ttwo\nRUN <<EOF\necho\nEOF\nCMD x')

    copy, run, _ = file.target.instructions
    assert isinstance(copy, ins.Copy)
    assert isinstance(run, ins.Run)
    assert [(each.body, each.expands) for each in copy.inline.values()] == [("body $a\n", True), ("$raw\n", False)]
    assert run.heredocs[0].body == "echo\n"


def test_a_shift_in_a_command_is_no_heredoc() -> None:
    run = only("RUN echo $((1<<2)) <<< text")

    assert isinstance(run, ins.Run)
    assert run.heredocs == ()


def test_json_form_falls_back_to_the_shell_form() -> None:
    proper, broken = only('CMD ["a", "b c"]'), only("CMD [ -f x ] && y")

    assert isinstance(proper, ins.Cmd)
    assert proper.command == ins.Command(("a", "b c"), is_shell=False)
    assert isinstance(broken, ins.Cmd)
    assert broken.command == ins.Command(("[ -f x ] && y",), is_shell=True)


def test_old_and_new_forms_of_env() -> None:
    old, new = only("ENV name some text here"), only('ENV a=1 b="2 3" c=4\\ 5')

    assert isinstance(old, ins.Env)
    assert old.pairs == (("name", "some text here"),)
    assert isinstance(new, ins.Env)
    assert [words.expand(v, {}) for _, v in new.pairs] == ["1", "2 3", "4 5"]


def test_mounts_of_run() -> None:
    run = only("RUN --mount=type=cache,target=/c,sharing=locked --mount=type=secret,id=t,required npm ci")

    assert isinstance(run, ins.Run)
    assert run.mounts == (ins.Mount("cache", {"target": "/c", "sharing": "locked"}),
                          ins.Mount("secret", {"id": "t", "required": "true"}))  # fmt: skip


def test_healthcheck_times_are_nanoseconds() -> None:
    check = only("HEALTHCHECK --interval=1m30s --timeout=500ms --retries=4 CMD curl x")

    assert isinstance(check, ins.Healthcheck)
    assert (check.intervals, check.retries) == ({"Interval": 90 * 10**9, "Timeout": 5 * 10**8}, 4)


def test_arguments_before_from_choose_the_base_image() -> None:
    text = "ARG version=1\nARG image=node:${version}\nFROM ${image}-slim AS base\nFROM base"

    assert load(text).stages[0].base == "node:1-slim"
    assert load(text, version="2").stages[0].base == "node:2-slim"
    assert load(text).target.base_stage is not None


def test_the_target_is_the_last_stage_unless_one_is_named() -> None:
    text = "FROM a AS one\nFROM b AS two\nCOPY --from=0 x y\nFROM c"

    assert load(text).target.index == 2
    assert load(text, target="TWO").target.index == 1
    with pytest.raises(DockerfileError, match="no stage 'three'"):
        load(text, target="three")


def test_a_stage_may_copy_from_a_later_stage() -> None:
    file = load("FROM a AS one\nCOPY --from=two x y\nFROM b AS two\nFROM one")

    assert [stage.name for stage in stages.needed(file, file.stages[0])] == ["two"]


def test_onbuild_triggers_of_a_base_image_are_parsed_at_the_line_of_from() -> None:
    assert parser.parse_trigger("COPY . /app", 7).line == 7
    with pytest.raises(DockerfileError, match="line 7: the base image's ONBUILD"):
        parser.parse_trigger("COPI . /app", 7)
