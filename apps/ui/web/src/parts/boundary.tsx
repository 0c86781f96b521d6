import { Component, type ComponentChildren } from "preact";
import { Problem } from "./text";

/** Shows an error of a page in place of the page, so that the navigation and the other pages go on. */
export class Boundary extends Component<{ children: ComponentChildren }, { error: string | null }> {
  override state = { error: null as string | null };

  static override getDerivedStateFromError(error: unknown) {
    return { error: error instanceof Error ? error.message : String(error) };
  }

  override render() {
    if (this.state.error === null) return this.props.children;
    return (
      <section>
        <h1 tabIndex={-1}>This page cannot be shown</h1>
        <Problem text={this.state.error} />
        <button type="button" onClick={() => this.setState({ error: null })}>Try again</button>
      </section>
    );
  }
}
