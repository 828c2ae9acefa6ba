/** Compute of an app: tier, disk, and how it scales by load. */

import { ApiError } from "../../api/errors";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Card } from "../../ui/feedback";
import { Form, SwitchField, TextField, useForm } from "../../ui/form";
import { patch } from "./settings";
import type { Project } from "./state";
import { tell } from "./tabs/env";
import { TierChoices } from "./tiers";

interface Values {
  tier: string;
  disk: string;
  enabled: boolean;
  minReplicas: string;
  maxReplicas: string;
  targetCpuPercent: string;
}

function valuesOf({ tier, disk, autoScaling }: Project): Values {
  return {
    tier: tier?.key ?? "",
    disk: String(disk ?? 0),
    enabled: autoScaling?.enabled ?? false,
    minReplicas: String(autoScaling?.minReplicas ?? 1),
    maxReplicas: String(autoScaling?.maxReplicas ?? 1),
    targetCpuPercent: String(autoScaling?.targetCpuPercent ?? 80),
  };
}

/** Send only the parts that were changed; the API's names of fields become those of the form. */
async function save(project: Project, values: Values): Promise<Project> {
  const before = valuesOf(project);
  const { tier, disk, ...scaling } = values;
  const { tier: oldTier, disk: oldDisk, ...oldScaling } = before;
  const numbers = { minReplicas: Number(scaling.minReplicas), maxReplicas: Number(scaling.maxReplicas), targetCpuPercent: Number(scaling.targetCpuPercent) };
  try {
    return await patch(project.name, {
      ...(tier !== oldTier && { tier: { key: tier } }),
      ...(disk !== oldDisk && { disk: Number(disk) }),
      ...(JSON.stringify(scaling) !== JSON.stringify(oldScaling) && { autoScaling: { enabled: scaling.enabled, ...numbers } }),
    });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const fields = Object.fromEntries(Object.entries(error.fields).map(([name, problem]) => [name.replace(/^autoScaling\./, "").replace(/^tier\.key$/, "tier"), problem]));
    throw new ApiError(error.status, error.code, error.message, fields, error.traceId, error.retryAfterS);
  }
}

export function Compute({ project }: { project: Project }) {
  const t = text.projectSettings;
  const form = useForm(valuesOf(project), (values) => save(project, values), { refreshes: ["/v1/projects"], onDone: tell });
  const { enabled, tier } = form.values.value;
  return (
    <Card title={t.compute} foot={t.computeHint}>
      <Form form={form} submit={text.common.save} why={whyNot("member")}>
        <TierChoices value={tier} onChange={(key) => form.set("tier", key)} problem={form.problem("tier")} />
        <div class="fields">
          <TextField form={form} name="disk" label={t.disk} hint={t.diskHint} type="number" />
        </div>
        <SwitchField form={form} name="enabled" label={t.scaling} hint={t.scalingHint} />
        {enabled && (
          <div class="fields three">
            <TextField form={form} name="minReplicas" label={t.minReplicas} type="number" />
            <TextField form={form} name="maxReplicas" label={t.maxReplicas} type="number" />
            <TextField form={form} name="targetCpuPercent" label={t.target} type="number" />
          </div>
        )}
      </Form>
    </Card>
  );
}
