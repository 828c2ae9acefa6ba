/** Catches errors of pages, so that the rest of the console stays. */

import { Component, type ComponentChildren } from "preact";
import { text } from "../text";
import { Button } from "../ui/button";
import { Notice } from "../ui/feedback";

export class Crash extends Component<{ children: ComponentChildren }, { error?: Error }> {
  override state: { error?: Error } = {};

  static override getDerivedStateFromError(error: Error) {
    return { error };
  }

  override componentDidCatch(error: Error): void {
    console.error(error);
  }

  override render() {
    const { error } = this.state;
    if (!error) return this.props.children;
    return (
      <div class="content">
        <Notice kind="bad" actions={<Button size="small" onClick={() => location.reload()}>{text.common.retry}</Button>}>
          <p>{text.frame.crashed}</p>
          <p class="mono small">{error.message}</p>
        </Notice>
      </div>
    );
  }
}
