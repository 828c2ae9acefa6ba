/** All components on one page, for those who build pages and for tests. Nothing links to it: open /components. */

import { Boxes } from "lucide-preact";
import { useMemo, useState } from "preact/hooks";
import { ApiError } from "../../api/errors";
import { PageHead } from "../../frame/page";
import { ApiCall } from "../../ui/apicall";
import { Button } from "../../ui/button";
import { Chart, Ranges } from "../../ui/chart/chart";
import { Bars, Meter, Sparkline } from "../../ui/chart/sparkline";
import { CodeBlock, Copy, Secret } from "../../ui/copy";
import { Confirm, ConfirmDanger } from "../../ui/dialog";
import { Editor } from "../../ui/editor/editor";
import { Card, Empty, ErrorBox, Facts, Notice, SkeletonRows } from "../../ui/feedback";
import { Choices, Field, Select, Switch } from "../../ui/form";
import { Lines } from "../../ui/log/lines";
import { LogView } from "../../ui/log/view";
import { MenuGap, MenuItem, Popover } from "../../ui/menu";
import { Status } from "../../ui/status";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";
import { showToast } from "../../ui/toast";

const STATES = ["running", "deploying", "stopped", "attention", "failed"];
const WAVE = Array.from({ length: 60 }, (_, at) => (at > 40 && at < 46 ? null : 20 + 15 * Math.sin(at / 6)));
const TIMES = WAVE.map((_, at) => 1_700_000_000 + at * 60);

export default function Components() {
  return (
    <>
      <PageHead title="Components" subtitle={<p class="soft">For those who build pages.</p>} />
      <div class="stack wide">
        <Controls />
        <Feedback />
        <Charts />
        <Card title="Log">
          <ExampleLog />
        </Card>
        <Card title="Editor">
          <ExampleEditor />
        </Card>
        <Rows />
      </div>
    </>
  );
}

function Controls() {
  const [isOn, setOn] = useState(true);
  const [choice, setChoice] = useState("small");
  const [dialog, setDialog] = useState("");
  const wait = () => new Promise((resolve) => setTimeout(resolve, 300));
  return (
    <Card title="Controls">
      <div class="stack wide">
        <div class="row wrap">
          <Button kind="primary">Primary</Button>
          <Button>Default</Button>
          <Button kind="quiet">Quiet</Button>
          <Button kind="danger" onClick={() => setDialog("danger")}>
            Delete
          </Button>
          <Button onClick={() => setDialog("confirm")}>Confirm</Button>
          <Button why="Needs the role admin; you are member.">Disabled with a reason</Button>
          <Button isBusy>Busy</Button>
          <Button onClick={() => showToast({ kind: "ok", title: "Saved" })}>Toast</Button>
          <Popover
            label="Example"
            trigger={(props) => (
              <button type="button" class="button" {...props}>
                Menu
              </button>
            )}
          >
            {(close) => (
              <>
                <MenuItem onClick={close}>Restart</MenuItem>
                <MenuGap />
                <MenuItem isDanger onClick={close}>
                  Delete
                </MenuItem>
              </>
            )}
          </Popover>
        </div>
        <div class="fields">
          <Field label="Name" hint="Lower case, digits and hyphens.">
            {(ids) => <input {...ids} class="input" />}
          </Field>
          <Field label="Name" problem="This name is taken">
            {(ids) => <input {...ids} class="input" value="shop" />}
          </Field>
          <Field label="Language">{(ids) => <Select {...ids} value="a" onChange={() => undefined} options={[{ value: "a", label: "Python" }]} />}</Field>
          <Switch label="Deploy every push" isOn={isOn} onChange={setOn} />
        </div>
        <Choices
          label="Tier"
          value={choice}
          onChange={setChoice}
          options={[
            { value: "small", label: "Small", hint: "0.5 CPU, 512 MB" },
            { value: "large", label: "Large", hint: "2 CPU, 4 GB" },
          ]}
        />
        <ApiCall method="POST" path="/v1/projects" body={{ name: "shop" }} />
      </div>
      {dialog === "danger" && (
        <ConfirmDanger title="Delete database" button="Delete database harbor" name="harbor" act={wait} onClose={() => setDialog("")}>
          <p>Its data is kept for 7 days in the trash.</p>
        </ConfirmDanger>
      )}
      {dialog === "confirm" && (
        <Confirm title="Roll back" button="Roll back" act={wait} onClose={() => setDialog("")}>
          <p>The earlier release is published again.</p>
        </Confirm>
      )}
    </Card>
  );
}

function Feedback() {
  return (
    <Card title="States and messages">
      <div class="stack wide">
        <div class="row wrap" style={{ gap: 20 }}>
          {STATES.map((state) => (
            <Status key={state} of={state} />
          ))}
          <Time at={Date.now() - 125_000} />
          <Copy value="a1b2c3d" isMono />
          <Secret label="Password" reveal={async () => "correct horse"} />
        </div>
        <Facts items={[["Commit", <code>a1b2c3d</code>], ["Built in", "8.2 s"]]} />
        <Notice>Something to know.</Notice>
        <Notice kind="ok">It worked.</Notice>
        <Notice kind="warn">It needs attention.</Notice>
        <ErrorBox error={new ApiError(500, "internal", "The platform could not do this", {}, "640b9d09f47fab7a")} onRetry={() => undefined} />
        <CodeBlock code={"git push live main\ncurl http://shop.localhost:8081"} />
        <Empty icon={<Boxes size={20} />}>An empty state says what the thing is for.</Empty>
        <SkeletonRows rows={2} />
      </div>
    </Card>
  );
}

function Charts() {
  const [range, setRange] = useState<"1h" | "24h">("1h");
  return (
    <Card title="Charts" actions={<Ranges value={range} ranges={["1h", "24h"] as const} onChange={setRange} />}>
      <div class="stack wide">
        <Chart title="CPU" times={TIMES} series={[{ label: "CPU", values: WAVE }]} unit="%" max={100} group="example" marks={[{ at: TIMES[20]!, label: "Deployment", href: "/projects" }]} />
        <Chart title="Latency" times={TIMES} series={[{ label: "p50", values: WAVE }, { label: "p95", values: WAVE.map((value) => (value === null ? null : value * 1.7)) }]} unit="ms" group="example" />
        <Sparkline values={WAVE} label="Example" />
        <Bars label="Example" bars={Array.from({ length: 24 }, (_, at) => ({ look: at === 9 ? "bad" : at === 10 ? "warn" : "ok", title: `${at}:00` }))} />
        <Meter used={7} limit={10} label="Example" />
      </div>
    </Card>
  );
}

function ExampleLog() {
  const lines = useMemo(() => {
    const made = new Lines();
    made.push("\x1b[32m✔\x1b[0m installed \x1b[1m120\x1b[0m packages");
    made.push("<img src=x onerror=alert(1)> \u202Eabc \x1b]0;title\x07 stays text");
    for (let number = 0; number < 5_000; number += 1) made.push(`line ${number}`);
    made.push("error: cannot find module 'left-pad'");
    made.push("x".repeat(100_000));
    return made;
  }, []);
  return <LogView lines={lines} name="example" />;
}

function ExampleEditor() {
  const [files, setFiles] = useState<Record<string, string>>({ "main.py": "def main(params):\n    return {\"body\": \"hello\"}\n", "package.json": "{}\n" });
  return <Editor label="Example" files={files} onChange={setFiles} />;
}

function Rows() {
  const rows = useMemo(() => Array.from({ length: 500 }, (_, at) => ({ id: at, name: `project-${at}`, state: STATES[at % STATES.length]! })), []);
  return (
    <Table
      label="Example rows"
      rows={rows}
      keyOf={(row) => row.id}
      filter={(row) => row.name}
      columns={[
        { name: "Name", of: (row) => row.name, sort: (row) => row.name },
        { name: "Status", of: (row) => <Status of={row.state} />, sort: (row) => row.state },
      ]}
    />
  );
}
