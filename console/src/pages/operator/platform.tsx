/** The machine, its processes, queues and disk. */

import { useResource } from "../../api/resource";
import type { Data, Item } from "../../api/types";
import { bytes, count, duration } from "../../lib/format";
import { text } from "../../text";
import { Meter } from "../../ui/chart/sparkline";
import { Card, Loaded } from "../../ui/feedback";
import { Status } from "../../ui/status";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";

const t = text.operator;
type Machine = Item<Data<"/v1/operator/machines">>;

export default function Platform() {
  const machines = useResource("/v1/operator/machines", {}, { pollMs: 10_000 });
  const processes = useResource("/v1/operator/processes", {}, { pollMs: 10_000 });
  const queues = useResource("/v1/operator/queues", {}, { pollMs: 5_000 });
  const disk = useResource("/v1/operator/disk", {}, { pollMs: 60_000 });
  return (
    <div class="stack side-cards">
      <Loaded of={machines}>{(list) => list.map((each) => <MachineTiles key={each.name} machine={each} />)}</Loaded>
      <div class="grid-2">
        <Card title={t.processes} isFlush>
          <Loaded of={processes}>{(rows) => <Processes rows={rows} />}</Loaded>
        </Card>
        <div class="stack side-cards">
          <Card title={t.queues} isFlush>
            <Loaded of={queues}>{(data) => <Queues data={data} />}</Loaded>
          </Card>
          <Loaded of={disk}>{(data) => <Disk data={data} />}</Loaded>
        </div>
      </div>
    </div>
  );
}

function MachineTiles({ machine }: { machine: Machine }) {
  const { memory, disk, load, cpuCount } = machine;
  const usedMemory = memory.totalBytes - memory.availableBytes;
  const usedDisk = disk.totalBytes - disk.freeBytes;
  return (
    <section class="stack">
      <h2>{machine.name}</h2>
      <div class="big-tiles">
        <div>
          <span class="soft small">{t.load}</span>
          <span class="figures">
            <strong>{(load[0] ?? 0).toFixed(1)}</strong> <span class="soft small">{load.slice(1).map((each) => each.toFixed(1)).join(" ")}</span>
          </span>
          <Meter used={load[0] ?? 0} limit={cpuCount} label={t.load} />
          <span class="soft small">{t.loadOf(cpuCount)}</span>
        </div>
        <div>
          <span class="soft small">{t.memory}</span>
          <strong class="figures">{bytes(usedMemory)}</strong>
          <Meter used={usedMemory} limit={memory.totalBytes} label={t.memory} />
          <span class="soft small">{t.freeOf(bytes(memory.availableBytes), bytes(memory.totalBytes))}</span>
        </div>
        <div>
          <span class="soft small">{t.disk}</span>
          <strong class="figures">{bytes(usedDisk)}</strong>
          <Meter used={usedDisk} limit={disk.totalBytes} label={t.disk} />
          <span class="soft small">{t.freeOf(bytes(disk.freeBytes), bytes(disk.totalBytes))}</span>
        </div>
        <div>
          <span class="soft small">{t.uptime}</span>
          <strong class="figures">{duration(machine.uptimeS * 1_000)}</strong>
          <span class="soft small breaks">{Object.entries(machine.versions).map((each) => each.join(" ")).join(" · ")}</span>
        </div>
      </div>
    </section>
  );
}

function Processes({ rows }: { rows: Data<"/v1/operator/processes"> }) {
  return (
    <Table
      label={t.processes}
      rows={rows}
      keyOf={(each) => `${each.name} ${each.pid}`}
      columns={[
        { name: text.common.name, of: (each) => each.name, sort: (each) => each.name },
        { name: text.common.status, of: (each) => <Status of={each.running ? "running" : "failed"} word={each.running ? t.running : t.stopped} /> },
        { name: t.pid, of: (each) => each.pid, isNumber: true, isHiddenOnPhone: true },
        { name: t.memory, of: (each) => bytes(each.memoryBytes), sort: (each) => each.memoryBytes, isNumber: true },
        { name: t.cpuTime, of: (each) => duration(each.cpuMs), sort: (each) => each.cpuMs, isNumber: true },
        { name: t.started, of: (each) => <Time at={each.startedAt} />, isHiddenOnPhone: true },
        { name: t.restarts, of: (each) => count(each.restarts), sort: (each) => each.restarts, isNumber: true },
      ]}
    />
  );
}

function Queues({ data }: { data: Data<"/v1/operator/queues"> }) {
  return (
    <>
      <div class="well">
        <dl class="totals">
          {([[t.queued, data.queued], [t.active, data.running], [t.failed, data.failed]] as const).map(([label, value]) => (
            <div key={label}>
              <dt>{label}</dt>
              <dd class="figures">{count(value)}</dd>
            </div>
          ))}
        </dl>
      </div>
      {data.items.length === 0 ? (
        <p class="soft small studio-note">{t.queuesEmpty}</p>
      ) : (
        <Table
          label={t.queues}
          rows={data.items}
          keyOf={(each) => `${each.kind} ${each.lane} ${each.status}`}
          columns={[
            { name: t.kind, of: (each) => <code class="breaks">{each.kind}</code> },
            { name: text.common.status, of: (each) => <Status of={each.status} word={each.status} /> },
            { name: t.count, of: (each) => count(each.count), isNumber: true },
            { name: t.overdue, of: (each) => (each.overdueMs > 0 ? duration(each.overdueMs) : "–"), isNumber: true },
          ]}
        />
      )}
    </>
  );
}

function Disk({ data }: { data: Data<"/v1/operator/disk"> }) {
  const areas = Object.entries(data.areas).sort(([, a], [, b]) => b - a);
  const most = Math.max(1, ...areas.map(([, size]) => size));
  return (
    <Card title={t.areas} actions={<span class="soft small">{t.measured} <Time at={data.measuredAt} /></span>} foot={t.reserve(bytes(data.reserveBytes))}>
      <ul class="areas">
        {areas.map(([name, size]) => (
          <li key={name}>
            <span class="cut">{name}</span>
            <div class="meter" aria-hidden="true">
              <i style={{ width: `${(100 * size) / most}%` }} />
            </div>
            <span class="figures">{bytes(size)}</span>
          </li>
        ))}
      </ul>
    </Card>
  );
}
