/** Plan, usage against limits, billing, and the tiers that the plan offers. */

import { CreditCard } from "lucide-preact";
import { useResource } from "../../api/resource";
import { compact, count } from "../../lib/format";
import { text } from "../../text";
import { ButtonLink } from "../../ui/button";
import { Meter } from "../../ui/chart/sparkline";
import { Card, Facts, Loaded } from "../../ui/feedback";
import { Status } from "../../ui/status";
import { Table } from "../../ui/table";

export default function Usage() {
  const usage = useResource("/v1/usage", {}, { pollMs: 30_000 });
  const limits = useResource("/v1/limits", {}, { pollMs: 120_000 });
  const billing = useResource("/v1/billing", {}, { pollMs: 120_000 });
  const tiers = useResource("/v1/tiers", {});
  const t = text.usage;
  return (
    <div class="stack wide">
      <Card
        title={t.plan}
        actions={
          billing.data?.portalUrl && (
            <ButtonLink size="small" href={billing.data.portalUrl} isExternal icon={<CreditCard size={14} aria-hidden="true" />}>
              {t.portal}
            </ButtonLink>
          )
        }
      >
        <Loaded of={billing}>
          {(data) => (
            <Facts
              items={[
                [t.plan, <strong class="plan-name">{data.plan}</strong>],
                [t.provider, t.providers[data.provider] ?? (data.paid ? t.paid : t.free)],
                [t.card, <Status of={data.cardVerified ? "verified" : "stopped"} word={data.cardVerified ? t.cardVerified : t.cardMissing} />],
                [t.requests, limits.data ? count(limits.data.requestsPerMinute) : "–"],
              ]}
            />
          )}
        </Loaded>
      </Card>
      <Card title={t.resources}>
        <Loaded of={usage}>
          {(data) => (
            <div class="usage-list">
              {Object.entries(data.usage).map(([name, { used, limit }]) => (
                <div key={name} class="stack tight">
                  <div class="row between">
                    <span>{t.names[name] ?? name}</span>
                    <span class="soft small figures">{limit === null ? t.unlimited(count(used)) : t.of(count(used), count(limit))}</span>
                  </div>
                  {limit !== null && <Meter used={used} limit={limit} label={t.names[name] ?? name} />}
                  {limit !== null && used >= limit && <span class="small rule-problem">{t.full}</span>}
                </div>
              ))}
            </div>
          )}
        </Loaded>
      </Card>
      <Card title={t.month}>
        <Loaded of={usage}>
          {(data) => <Facts items={Object.entries(data.metered).map(([name, value]) => [t.metered[name] ?? name, <strong class="figures">{compact(value)}</strong>])} />}
        </Loaded>
      </Card>
      <Card title={t.tiers} isFlush>
        <Loaded of={tiers}>
          {(items) => (
            <Table
              label={t.tiers}
              rows={items}
              keyOf={(each) => each.key}
              columns={[
                { name: text.common.name, of: (each) => <strong>{each.name}</strong> },
                { name: "CPU", of: (each) => each.cpu, isNumber: true },
                { name: text.metrics.memory, of: (each) => `${each.memory} GB`, isNumber: true },
                { name: text.projectSettings.disk, of: (each) => each.disk, isNumber: true },
                { name: t.plan, of: (each) => (each.paid ? t.paid : t.free) },
              ]}
            />
          )}
        </Loaded>
      </Card>
    </div>
  );
}
