/** The machines of the platform: heartbeat, what they run, draining and removal. */

import { Server } from "lucide-preact";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Data, Item } from "../../api/types";
import { bytes, relative, tally } from "../../lib/format";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Confirm, ConfirmDanger } from "../../ui/dialog";
import { Empty, Loaded, Notice } from "../../ui/feedback";
import { Switch } from "../../ui/form";
import { Status } from "../../ui/status";
import { Table } from "../../ui/table";

export type Machine = Item<Data<"/v1/operator/machines">>;
const t = text.operator;
const REFRESHES = ["/v1/operator/machines"];
const LOOKS: Record<string, string> = { active: "running", draining: "updating", gone: "failed" };

export default function Machines() {
  const machines = useResource("/v1/operator/machines", {}, { pollMs: 5_000 });
  const [asked, setAsked] = useState<{ act: "drain" | "remove"; machine: Machine }>();
  const close = () => setAsked(undefined);
  return (
    <>
      <Loaded of={machines}>
        {(list) =>
          list.length === 0 ? (
            <Empty icon={<Server size={20} />}>{t.machine}</Empty>
          ) : (
            <div class="stack wide">
              <MachineTable machines={list} onAsk={(act, machine) => setAsked({ act, machine })} />
              {asked?.act === "drain" && <Drain machine={asked.machine} others={list.filter((each) => each.name !== asked.machine.name && each.status === "active").length} onClose={close} />}
              {asked?.act === "remove" && <Remove machine={asked.machine} onClose={close} />}
            </div>
          )
        }
      </Loaded>
    </>
  );
}

function MachineTable({ machines, onAsk }: { machines: Machine[]; onAsk: (act: "drain" | "remove", machine: Machine) => void }) {
  return (
    <Table
      label={t.tabs.machines}
      rows={machines}
      keyOf={(each) => each.name}
      columns={[
        {
          name: text.common.name,
          of: (each) => (
            <span class="stack tight">
              <span class="row wrap">
                <span class="strong breaks">{each.name}</span> {each.isThis && <span class="tag accent">{t.thisMachine}</span>}
              </span>
              <span class="soft small breaks">{[each.address, ...Object.entries(each.labels).map(([name, value]) => `${name}=${value}`)].filter(Boolean).join(" · ")}</span>
            </span>
          ),
          sort: (each) => each.name,
        },
        { name: text.common.status, of: (each) => <Status of={LOOKS[each.status] ?? each.status} word={t.machineStates[each.status] ?? each.status} />, sort: (each) => each.status },
        { name: t.heartbeat, of: (each) => <span class="figures one-line">{relative(Date.now() - each.heartbeatAgeMs)}</span>, sort: (each) => each.heartbeatAgeMs },
        { name: t.load, of: (each) => <span class="figures one-line">{`${(each.load[0] ?? 0).toFixed(1)} / ${each.cpuCount}`}</span>, isNumber: true, isWideOnly: true },
        { name: t.memory, of: (each) => <span class="one-line">{bytes(each.memory.totalBytes - each.memory.availableBytes)}</span>, isNumber: true, isWideOnly: true },
        { name: t.runs, of: (each) => <span class="soft">{runsOf(each)}</span> },
        { name: text.orgCommon.actions, of: (each) => <Tools machine={each} onAsk={onAsk} /> },
      ]}
    />
  );
}

function runsOf({ resources, movable, stateful }: Machine): string {
  return [tally(resources), ...(movable ? [t.movable(movable)] : []), ...(stateful.length ? [t.kept(stateful.length)] : [])].filter(Boolean).join(", ") || "–";
}

function Tools({ machine, onAsk }: { machine: Machine; onAsk: (act: "drain" | "remove", machine: Machine) => void }) {
  const undo = useAction(() => patch(machine, false), { done: t.undrained(machine.name), refreshes: REFRESHES });
  return (
    <span class="row-tools">
      {machine.status === "active" && (
        <Button size="small" onClick={() => onAsk("drain", machine)}>
          {t.drain}
        </Button>
      )}
      {machine.status === "draining" && (
        <Button size="small" isBusy={undo.isBusy} onClick={() => undo.run()}>
          {t.undrain}
        </Button>
      )}
      <Button kind="danger" size="small" why={machine.status === "gone" ? undefined : t.notGone} onClick={() => onAsk("remove", machine)}>
        {t.remove}
      </Button>
    </span>
  );
}

function patch({ name }: Machine, draining: boolean): Promise<unknown> {
  return api.patch("/v1/operator/machines/{name}", { path: { name }, body: { draining } });
}

function Drain({ machine, others, onClose }: { machine: Machine; others: number; onClose: () => void }) {
  return (
    <Confirm title={t.drainTitle(machine.name)} button={t.drain} act={() => patch(machine, true)} onClose={onClose} done={t.draining(machine.name)} refreshes={REFRESHES}>
      <p>{t.drainText}</p>
      {others === 0 && <Notice kind="warn">{t.drainAlone}</Notice>}
      <Kept machine={machine} title={t.drainKeeps} />
    </Confirm>
  );
}

function Kept({ machine, title }: { machine: Machine; title: string }) {
  if (machine.stateful.length === 0) return null;
  return (
    <div class="stack tight">
      <p class="soft">{title}</p>
      <ul class="plain-list">
        {machine.stateful.map((each) => (
          <li key={each} class="mono small breaks">
            {each}
          </li>
        ))}
      </ul>
    </div>
  );
}

function Remove({ machine, onClose }: { machine: Machine; onClose: () => void }) {
  const [lost, setLost] = useState(false);
  const { name } = machine;
  return (
    <ConfirmDanger
      title={t.removeTitle(name)}
      button={t.removeTitle(name)}
      name={name}
      act={() => api.delete("/v1/operator/machines/{name}", { path: { name }, query: { lost } })}
      onClose={onClose}
      done={t.removed(name)}
      refreshes={REFRESHES}
    >
      <p>{t.removeText}</p>
      {machine.stateful.length > 0 && (
        <>
          <Switch label={t.removeLost} isOn={lost} onChange={setLost} />
          <Kept machine={machine} title={t.removeLostHint} />
        </>
      )}
    </ConfirmDanger>
  );
}
