/** Create a schedule of a function. */

import { SquareFunction } from "lucide-preact";
import { useLocation } from "preact-iso";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { PageHead } from "../../frame/page";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { ApiCall } from "../../ui/apicall";
import { ButtonLink } from "../../ui/button";
import { Card, Empty, Loaded } from "../../ui/feedback";
import { Form, SelectField, SwitchField, TextField, useForm } from "../../ui/form";
import { CronField, LOCAL_ZONE } from "../cron/helper";
import { ParamsField, paramsProblem, toParams } from "./params";

const t = text.schedules;

export default function CreateSchedule() {
  const functions = useResource("/v1/functions", { query: { pageSize: 100 } });
  return (
    <>
      <PageHead title={t.create} crumbs={[{ label: t.title, href: "/schedules" }]} />
      <div class="narrow">
        <Loaded of={functions}>
          {({ items }) =>
            items.length === 0 ? (
              <Empty
                icon={<SquareFunction size={20} />}
                action={
                  <ButtonLink kind="primary" href="/functions/new">
                    {text.functions.create}
                  </ButtonLink>
                }
              >
                {t.needFunction}
              </Empty>
            ) : (
              <NewSchedule functions={items.map(({ name }) => name)} />
            )
          }
        </Loaded>
      </div>
    </>
  );
}

function NewSchedule({ functions }: { functions: string[] }) {
  const { route, query } = useLocation();
  const wanted = query["function"] ?? "";
  const initial = { name: "", function: functions.includes(wanted) ? wanted : functions[0]!, cronSchedule: "0 9 * * 1-5", timezone: LOCAL_ZONE, enabled: true, params: "{}" };
  const form = useForm(initial, async ({ params, ...rest }) => api.post("/v1/scheduled-functions", { body: { ...rest, params: toParams(params) } }), {
    done: (made) => t.created(made.name),
    refreshes: ["/v1/scheduled-functions"],
    onDone: (made) => route(`/schedules/${made.id}`),
  });
  const values = form.values.value;
  const body = { ...values, params: paramsProblem(values.params) ? {} : JSON.parse(values.params || "{}") };
  return (
    <Card>
      <Form form={form} submit={t.submit} why={whyNot("member")}>
        <div class="fields">
          <TextField form={form} name="name" label={text.common.name} hint={t.nameHint} placeholder="nightly-report" clean={(given) => given.toLowerCase()} isFocused />
          <SelectField form={form} name="function" label={t.fn} options={functions.map((value) => ({ value, label: value }))} />
        </div>
        <CronField
          expression={values.cronSchedule}
          onExpression={(value) => form.set("cronSchedule", value)}
          timezone={values.timezone}
          onTimezone={(value) => form.set("timezone", value)}
          problem={form.problem("cronSchedule")}
          zoneProblem={form.problem("timezone")}
        />
        <ParamsField value={values.params} onChange={(value) => form.set("params", value)} problem={form.problem("params")} />
        <SwitchField form={form} name="enabled" label={t.enabled} hint={t.enabledHint} />
        <ApiCall method="POST" path="/v1/scheduled-functions" body={body} />
      </Form>
    </Card>
  );
}
