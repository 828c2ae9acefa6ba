/** The repository of a project or cronjob: repositories of the built-in git server are offered, any other may be typed. */

import { useResource } from "../../api/resource";
import { Field } from "../../ui/form";

interface RepositoryFieldProps {
  label: string;
  hint: string;
  placeholder: string;
  value: string;
  problem: string | undefined;
  onChange: (name: string, branch: string | undefined) => void; // with the default branch of a known repository
}

export function RepositoryField({ label, hint, placeholder, value, problem, onChange }: RepositoryFieldProps) {
  const repositories = useResource("/v1/repositories", {});
  const set = (name: string) => onChange(name, repositories.data?.find((each) => each.name === name)?.defaultBranch);
  return (
    <Field label={label} hint={hint} problem={problem}>
      {(ids) => (
        <>
          <input {...ids} class="input" list="repositories" value={value} placeholder={placeholder} autocomplete="off" spellcheck={false} onInput={(event) => set(event.currentTarget.value)} />
          <datalist id="repositories">{repositories.data?.map((each) => <option key={each.name} value={each.name} />)}</datalist>
        </>
      )}
    </Field>
  );
}
