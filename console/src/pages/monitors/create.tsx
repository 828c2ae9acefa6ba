/** Create a monitor. */

import { useLocation } from "preact-iso";
import { api } from "../../api/client";
import { PageHead } from "../../frame/page";
import { hostOf } from "../../lib/format";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { ApiCall } from "../../ui/apicall";
import { Card } from "../../ui/feedback";
import { Form, useForm } from "../../ui/form";
import { bodyOf, MonitorFields, NEW, type MonitorValues } from "./form";

const t = text.monitor;

/** The host is a good name until another one is given. */
function filled(values: MonitorValues): MonitorValues {
  return { ...values, name: values.name || hostOf(values.url).split("/")[0]!.slice(0, 120) };
}

export default function CreateMonitor() {
  const { route, query } = useLocation();
  const form = useForm({ ...NEW, url: query["url"] ?? "" }, (values) => api.post("/v1/monitors", { body: bodyOf(filled(values), true) }), {
    done: (made) => t.created(made.name ?? ""),
    refreshes: ["/v1/monitors", "/v1/usage"],
    onDone: (made) => route(`/monitors/${made.id}`),
  });
  return (
    <>
      <PageHead title={text.monitors.create} crumbs={[{ label: text.monitors.title, href: "/monitors" }]} />
      <div class="narrow">
        <Card>
          <Form form={form} submit={t.submit} why={whyNot("member")}>
            <MonitorFields form={form} isNew />
            <ApiCall method="POST" path="/v1/monitors" body={bodyOf(filled(form.values.value), true)} />
          </Form>
        </Card>
      </div>
    </>
  );
}
