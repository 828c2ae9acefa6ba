/**
 * Forms. The names of fields are those of the API, so that its errors appear at their fields:
 *
 *   const form = useForm({ name: "", branch: "main" }, (values) => api.post("/v1/projects", { body: values }), { onDone });
 *   <Form form={form} submit="Create project">
 *     <TextField form={form} name="name" label="Name" />
 *   </Form>
 */

import { signal, type Signal } from "@preact/signals";
import { CircleAlert } from "lucide-preact";
import type { ComponentChildren } from "preact";
import { useId, useMemo, useRef } from "preact/hooks";
import { useAction, type Action, type ActionOptions } from "../api/actions";
import { text } from "../text";
import { Button } from "./button";
import { ErrorBox } from "./feedback";

export interface FormState<V extends object, T = unknown> {
  values: Signal<V>;
  action: Action<[], T>;
  set: <K extends keyof V>(name: K, value: V[K]) => void;
  problem: (name: string) => string | undefined;
}

export function useForm<V extends object, T>(
  initial: V,
  submit: (values: V) => Promise<T>,
  options: ActionOptions<T> = {},
): FormState<V, T> {
  const values = useMemo(() => signal(initial), []);
  const touched = useRef(new Set<string>());
  const action = useAction(() => (touched.current.clear(), submit(values.peek())), { isQuiet: true, ...options });
  return {
    values,
    action,
    set: (name, value) => {
      touched.current.add(String(name));
      values.value = { ...values.peek(), [name]: value };
    },
    problem: (name) => (touched.current.has(name) ? undefined : action.error?.fields[name]),
  };
}

interface FormProps<V extends object, T> {
  form: FormState<V, T>;
  children: ComponentChildren;
  submit: string;
  fields?: string[] | undefined; // fields that show their own errors; errors of others stand at the top
  why?: string | undefined; // why it cannot be submitted
  extra?: ComponentChildren; // beside the button
  onCancel?: (() => void) | undefined;
}

export function Form<V extends object, T>({ form, children, submit, why, extra, onCancel }: FormProps<V, T>) {
  const own = new Set(Object.keys(form.values.value));
  const error = form.action.error;
  const others = error ? Object.entries(error.fields).filter(([name]) => !own.has(name)) : [];
  return (
    <form
      class="stack wide"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void form.action.run();
      }}
    >
      {error && (Object.keys(error.fields).length === 0 || others.length > 0) && (
        <ErrorBox error={error} details={others.map(([name, problem]) => `${name}: ${problem}`)} />
      )}
      {children}
      <div class="row wrap">
        <Button type="submit" kind="primary" isBusy={form.action.isBusy} why={why}>
          {submit}
        </Button>
        {onCancel && <Button onClick={onCancel}>{text.common.cancel}</Button>}
        {extra}
      </div>
    </form>
  );
}

interface FieldProps {
  label: string;
  hint?: ComponentChildren;
  problem?: string | undefined;
  isOptional?: boolean | undefined;
  children: (ids: { id: string; "aria-describedby": string | undefined; "aria-invalid": boolean | undefined }) => ComponentChildren;
}

/** A label, a control, a hint, and what is wrong with the value. */
export function Field({ label, hint, problem, isOptional, children }: FieldProps) {
  const id = useId();
  const about = problem ? `${id}-problem` : hint ? `${id}-hint` : undefined;
  return (
    <div class="field">
      <label for={id}>
        {label} {isOptional && <span class="soft">({text.common.optional})</span>}
      </label>
      {children({ id, "aria-describedby": about, "aria-invalid": problem ? true : undefined })}
      {problem ? (
        <p class="problem" id={`${id}-problem`}>
          <CircleAlert size={14} aria-hidden="true" /> {problem}
        </p>
      ) : (
        hint && (
          <p class="hint" id={`${id}-hint`}>
            {hint}
          </p>
        )
      )}
    </div>
  );
}

type NameOf<V, K> = { [N in keyof V]: V[N] extends K ? N : never }[keyof V] & string;

interface TextFieldProps<V extends object, T> {
  form: FormState<V, T>;
  name: NameOf<V, string | undefined>;
  label: string;
  hint?: ComponentChildren;
  placeholder?: string | undefined;
  type?: "text" | "email" | "password" | "url" | "number" | undefined;
  isOptional?: boolean | undefined;
  isCode?: boolean | undefined;
  rows?: number | undefined; // a text of several lines
  clean?: ((value: string) => string) | undefined; // applied while typing
  isFocused?: boolean | undefined;
}

export function TextField<V extends object, T>(props: TextFieldProps<V, T>) {
  const { form, name, label, hint, placeholder, type = "text", isOptional, isCode, rows, clean, isFocused } = props;
  const value = String(form.values.value[name] ?? "");
  const set = (given: string) => form.set(name, (clean ? clean(given) : given) as V[typeof name]);
  const common = {
    name,
    value,
    placeholder,
    spellcheck: false,
    autocomplete: type === "email" ? ("email" as const) : ("off" as const),
  };
  return (
    <Field label={label} hint={hint} problem={form.problem(name)} isOptional={isOptional}>
      {(ids) =>
        rows ? (
          <textarea {...ids} {...common} class={`textarea ${isCode ? "mono" : ""}`} rows={rows} onInput={(event) => set(event.currentTarget.value)} />
        ) : (
          <input {...ids} {...common} type={type} autofocus={isFocused} class={`input ${isCode ? "mono" : ""}`} onInput={(event) => set(event.currentTarget.value)} />
        )
      }
    </Field>
  );
}

export interface Option {
  value: string;
  label: string;
  hint?: string | undefined;
  isDisabled?: boolean | undefined;
}

interface SelectFieldProps<V extends object, T> {
  form: FormState<V, T>;
  name: NameOf<V, string | undefined>;
  label: string;
  options: Option[];
  hint?: ComponentChildren;
}

export function SelectField<V extends object, T>({ form, name, label, options, hint }: SelectFieldProps<V, T>) {
  return (
    <Field label={label} hint={hint} problem={form.problem(name)}>
      {(ids) => (
        <Select
          {...ids}
          value={String(form.values.value[name] ?? "")}
          options={options}
          onChange={(value) => form.set(name, value as V[typeof name])}
        />
      )}
    </Field>
  );
}

interface SelectProps {
  id?: string;
  value: string;
  options: Option[];
  onChange: (value: string) => void;
  label?: string | undefined;
}

export function Select({ value, options, onChange, label, ...rest }: SelectProps) {
  return (
    <select class="select" {...rest} aria-label={label} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
      {options.map((option) => (
        <option key={option.value} value={option.value} disabled={option.isDisabled}>
          {option.label}
        </option>
      ))}
    </select>
  );
}

interface SwitchProps {
  label: string;
  isOn: boolean;
  onChange: (isOn: boolean) => void;
  hint?: string | undefined;
  why?: string | undefined;
}

export function Switch({ label, isOn, onChange, hint, why }: SwitchProps) {
  const id = useId();
  return (
    <div class="row between">
      <span class="stack tight grow">
        <span id={id}>{label}</span>
        {(why ?? hint) && <span class="soft small">{why ?? hint}</span>}
      </span>
      <button type="button" role="switch" class="switch" aria-checked={isOn} aria-labelledby={id} title={why} disabled={why !== undefined} onClick={() => onChange(!isOn)} />
    </div>
  );
}

export function SwitchField<V extends object, T>(props: { form: FormState<V, T>; name: NameOf<V, boolean | undefined>; label: string; hint?: string }) {
  const { form, name, ...rest } = props;
  return <Switch {...rest} isOn={Boolean(form.values.value[name])} onChange={(isOn) => form.set(name, isOn as V[typeof name])} />;
}

interface ChoicesProps {
  label: string;
  value: string;
  options: Option[];
  onChange: (value: string) => void;
}

/** A few options as cards, for example tiers or kinds. */
export function Choices({ label, value, options, onChange }: ChoicesProps) {
  const move = (event: KeyboardEvent, at: number) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = options[(at + step + options.length) % options.length]!;
    onChange(next.value);
    const cards = (event.currentTarget as HTMLElement).parentElement!.children;
    (cards[options.indexOf(next)] as HTMLElement).focus();
  };
  return (
    <div class="field">
      <span class="field-label" id={`choices-${label}`}>
        {label}
      </span>
      <div class="choices" role="radiogroup" aria-labelledby={`choices-${label}`}>
        {options.map((option, at) => (
          <button
            key={option.value}
            type="button"
            role="radio"
            class="choice"
            aria-checked={option.value === value}
            tabIndex={option.value === value ? 0 : -1}
            disabled={option.isDisabled}
            onClick={() => onChange(option.value)}
            onKeyDown={(event) => move(event, at)}
          >
            <strong>{option.label}</strong>
            {option.hint && <span class="soft small">{option.hint}</span>}
          </button>
        ))}
      </div>
    </div>
  );
}
