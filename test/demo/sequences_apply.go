package main

import (
	"context"

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
	err = a.create(ctx, object)
	if example.Refused == "" {
		return err
	}
	return checkRefusal(a.section, example.File, example.Refused, err)
}
