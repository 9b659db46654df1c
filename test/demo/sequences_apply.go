package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/yardmaster/yardmaster/test/demo/scenario"
)

// applyExamples creates the examples in a new namespace.
func (a *sequenceScenario) applyExamples(ctx context.Context) error {
	if err := a.recreateNamespace(ctx, sequencesNamespace); err != nil {
		return err
	}
	for _, example := range scenario.Examples() {
		if example.Missing != "" {
			a.section.Log("skipping %s: it needs %s", example.File, example.Missing)
			continue
		}
		if err := a.applyExample(ctx, &example); err != nil {
			return err
		}
		if example.IsApplied() {
			a.examples = append(a.examples, &runningExample{Example: example})
		}
	}
	return nil
}

// applyExample creates an example, and checks that an invalid one is refused.
func (a *sequenceScenario) applyExample(ctx context.Context, example *scenario.Example) error {
	object, err := readManifest(example.ManifestPath(), sequencesNamespace)
	if err != nil {
		return err
	}
	a.section.Log("$ kubectl -n %s apply -f examples/%s", sequencesNamespace, example.ManifestPath())
	err = a.createWithRetry(ctx, object)
	switch {
	case example.Refused == "":
		return err
	case err == nil:
		return fmt.Errorf("%s was accepted, expected a refusal with: %s", example.File, example.Refused)
	case !strings.Contains(err.Error(), example.Refused):
		return fmt.Errorf("%s was refused, expected the message %q: %w", example.File, example.Refused, err)
	}
	a.section.Log("refused as expected: %v", err)
	return nil
}
