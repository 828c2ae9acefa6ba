/** Settings of a project: for now the danger zone. Others add cards above it. */

import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { ConfirmDanger } from "../../ui/dialog";
import { Card } from "../../ui/feedback";
import type { TabProps } from "./project";

export default function Settings({ project }: TabProps) {
  const { route } = useLocation();
  const [isAsking, setAsking] = useState(false);
  const path = { name: project.name };
  const toggle = useAction(() => api.post("/v1/projects/{name}/toggle", { path, body: { enable: !project.enabled } }), {
    done: (changed) => text.projects.toggled(changed.name, changed.enabled),
    refreshes: ["/v1/projects"],
  });
  return (
    <Card title={text.projects.dangerTitle} isDanger>
      <div class="stack wide">
        <div class="row between wrap">
          <p class="soft grow">{text.projects.disableText}</p>
          <Button kind={project.enabled ? "danger" : undefined} why={whyNot("member")} isBusy={toggle.isBusy} onClick={() => toggle.run()}>
            {project.enabled ? text.projects.disable : text.projects.enable}
          </Button>
        </div>
        <div class="row between wrap">
          <p class="soft grow">{text.projects.deleteText}</p>
          <Button kind="danger" why={whyNot("admin")} onClick={() => setAsking(true)}>
            {text.projects.delete}
          </Button>
        </div>
      </div>
      {isAsking && (
        <ConfirmDanger
          title={text.projects.delete}
          button={`${text.projects.delete} ${project.name}`}
          name={project.name}
          act={() => api.delete("/v1/projects/{name}", { path })}
          onClose={() => setAsking(false)}
          done={text.projects.deleted(project.name)}
          refreshes={["/v1/projects?", "/v1/usage"]}
          onDone={() => route("/projects")}
        >
          <p>{text.projects.deleteText}</p>
        </ConfirmDanger>
      )}
    </Card>
  );
}
