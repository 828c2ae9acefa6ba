/** Runs a command in a sandbox of the live release, and shows its output while it prints. */

import { CircleStop, Play, SquareTerminal } from "lucide-preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, toApiError } from "../../../api/errors";
import { eventsOf } from "../../../api/events-of";
import { duration } from "../../../lib/format";
import { whyNot } from "../../../lib/roles";
import { text } from "../../../text";
import { Button } from "../../../ui/button";
import { Card, Empty, ErrorBox } from "../../../ui/feedback";
import { Field, Select } from "../../../ui/form";
import { Lines } from "../../../ui/log/lines";
import { LogView } from "../../../ui/log/view";
import { Status } from "../../../ui/status";
import type { TabProps } from "../project";
import type { Project } from "../state";

interface Run {
  command: string;
  lines: Lines;
  state: "running" | "stopped" | "succeeded" | "failed";
  word: string;
  error?: ApiError | undefined;
}

const KEY = "moorage.commands";
const KEPT = 20;

export default function RunTab({ project }: TabProps) {
  if (project.slug === "container") return <Runner project={project} />;
  return (
    <Card>
      <Empty icon={<SquareTerminal size={20} />}>{text.runner.static}</Empty>
    </Card>
  );
}

/** Commands of this tab of the browser, the newest first; they may contain secrets, so they end with the tab. */
function readHistory(): string[] {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "[]") as string[];
  } catch {
    return [];
  }
}

function Runner({ project }: { project: Project }) {
  const t = text.runner;
  const [command, setCommand] = useState("");
  const [timeout, setTimeoutS] = useState("300");
  const [history, setHistory] = useState(readHistory);
  const { run, start, stop } = useRun(project.name);
  const isRunning = run?.state === "running";
  const why = whyNot("member") ?? (project.successDeployments === 0 ? t.notLive : undefined);
  const submit = () => {
    const wanted = command.trim();
    if (!wanted || isRunning || why) return;
    const next = [wanted, ...history.filter((each) => each !== wanted)].slice(0, KEPT);
    sessionStorage.setItem(KEY, JSON.stringify(next));
    setHistory(next);
    void start(wanted, Number(timeout));
  };
  return (
    <div class="stack wide">
      <Card>
        <form class="stack" onSubmit={(event) => (event.preventDefault(), submit())}>
          <Field label={t.command} hint={t.hint}>
            {(ids) => (
              <span class="command">
                <span class="mono soft" aria-hidden="true">
                  $
                </span>
                <input {...ids} class="input mono" value={command} placeholder={t.placeholder} spellcheck={false} autocomplete="off" list="commands" maxLength={2_000} onInput={(event) => setCommand(event.currentTarget.value)} />
                <datalist id="commands">
                  {history.map((each) => (
                    <option key={each} value={each} />
                  ))}
                </datalist>
              </span>
            )}
          </Field>
          <div class="row wrap">
            {isRunning ? (
              <Button kind="danger" onClick={stop} icon={<CircleStop size={15} aria-hidden="true" />}>
                {t.stop}
              </Button>
            ) : (
              <Button type="submit" kind="primary" why={why} onClick={undefined} icon={<Play size={15} aria-hidden="true" />}>
                {t.run}
              </Button>
            )}
            <label class="row soft small">
              {t.timeout}
              <span class="log-filter">
                <Select label={t.timeout} value={timeout} options={Object.entries(t.timeouts).map(([value, label]) => ({ value, label }))} onChange={setTimeoutS} />
              </span>
            </label>
          </div>
        </form>
      </Card>
      {run?.error && <ErrorBox error={run.error} details={Object.values(run.error.fields)} />}
      {run ? <Output run={run} name={project.name} /> : <NoOutput />}
    </div>
  );
}

function NoOutput() {
  return (
    <Card>
      <Empty icon={<SquareTerminal size={20} />}>{text.runner.empty}</Empty>
    </Card>
  );
}

function Output({ run, name }: { run: Run; name: string }) {
  return (
    <Card
      title={
        <code class="cut" title={run.command}>
          $ {run.command}
        </code>
      }
      isFlush
      actions={<Status of={run.state} word={run.word} />}
    >
      <LogView key={run.command} lines={run.lines} name={`${name}-command`} isLive note={run.state === "running" ? text.log.waiting : text.log.ended} />
    </Card>
  );
}

/** One command at a time; leaving the page ends it, because the server ends a command whose client is gone. */
function useRun(name: string) {
  const [run, setRun] = useState<Run>();
  const abort = useRef<AbortController | undefined>(undefined);
  useEffect(() => () => abort.current?.abort(), []);
  const start = async (command: string, timeoutSeconds: number) => {
    const lines = new Lines();
    const output = new PrintedLines(lines);
    const began = performance.now();
    const end = (state: Run["state"], word: string, error?: ApiError) => {
      output.end();
      setRun({ command, lines, state, word: `${word} ${text.runner.took(duration(performance.now() - began))}`, error });
    };
    abort.current = new AbortController();
    setRun({ command, lines, state: "running", word: text.runner.running });
    try {
      await eventsOf("post", "/v1/projects/{name}/exec", { path: { name }, body: { command, timeoutSeconds }, signal: abort.current.signal }, (event) => {
        if (event.name === "output") {
          const { stream, text: printed } = JSON.parse(event.data) as { stream: string; text: string };
          output.push(stream, printed);
        }
        if (event.name === "exit") {
          const { exitCode, reason } = JSON.parse(event.data) as { exitCode: number; reason: string | null };
          if (reason) output.push("stderr", `\n${reason}\n`);
          end(exitCode === 0 ? "succeeded" : "failed", text.runner.exit(exitCode));
        }
      });
    } catch (error) {
      if (abort.current.signal.aborted) return end("stopped", text.runner.stopped);
      end("failed", text.status.failed, toApiError(error));
    }
  };
  return { run, start, stop: () => abort.current?.abort() };
}

/** Output comes in pieces that end anywhere; lines are shown whole, and the last one at the end. */
class PrintedLines {
  private rest: Record<string, string> = {};

  constructor(private readonly lines: Lines) {}

  push(stream: string, printed: string): void {
    const parts = ((this.rest[stream] ?? "") + printed).split("\n");
    this.rest[stream] = parts.pop()!;
    for (const line of parts) this.lines.push(line, stream);
  }

  end(): void {
    for (const [stream, line] of Object.entries(this.rest)) if (line) this.lines.push(line, stream);
    this.rest = {};
  }
}
