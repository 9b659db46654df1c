package scenario

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Examples returns all examples of examples/sequentialjob in the order of the demo.
func Examples() []Example {
	return []Example{
		completedExample("minimal.yaml", succeededStep("hello", "hello"), succeededStep("goodbye", "goodbye")),
		completedExample("etl-pipeline.yaml",
			ExpectedStep{Name: "extract", Phase: v1alpha1.StepSucceeded, Output: "240", LogContains: "extracted 240 orders"},
			succeededStep("transform", "extract reported 240 orders, the workspace contains 240"),
			ExpectedStep{Name: "load", Phase: v1alpha1.StepSucceeded, Output: "3 regions", LogContains: "north,1990"},
			succeededStep("clean-up", "loaded 3 regions from 240 orders; left in the workspace: warehouse")),
		failingMigration(),
		suspendedReport(),
		{
			File:  "image-pull-deadline.yaml",
			Phase: v1alpha1.PhaseFailed,
			Run:   1,
			Steps: []ExpectedStep{
				{Name: "unreachable", Phase: v1alpha1.StepFailed},
				{Name: "never-reached", Phase: v1alpha1.StepSkipped},
				succeededStep("notify", "the run has ended"),
			},
		},
		completedExample("retry.yaml", succeededStep("download", "downloaded in the second attempt"), succeededStep("import", "imported")),
		completedExample("on-failure-continue.yaml",
			succeededStep("build", ""),
			ExpectedStep{Name: "lint", Phase: v1alpha1.StepFailed, LogContains: "line 7 is too long"},
			succeededStep("package", "packaged")),
		completedExample("indexed-parallel.yaml", succeededStep("render", "frame 5 of 6"), succeededStep("assemble", "")),
		{File: "invalid-typo.yaml", Refused: `spec.containers[1].volumeMounts[0].name: Not found: "cahce"`},
		{File: "kueue.yaml", Missing: "Kueue and a LocalQueue"},
	}
}

// completedExample returns an example whose first run completes.
func completedExample(file string, steps ...ExpectedStep) Example {
	return Example{File: file, Phase: v1alpha1.PhaseCompleted, Run: 1, Steps: steps}
}

// succeededStep returns a step that succeeds and whose log contains the text.
func succeededStep(name, logContains string) ExpectedStep {
	return ExpectedStep{Name: name, Phase: v1alpha1.StepSucceeded, LogContains: logContains}
}

func failingMigration() Example {
	example := completedExample("failing-migration.yaml",
		ExpectedStep{Name: "backup", Phase: v1alpha1.StepSucceeded, Run: 1, LogContains: "backed up schema version 5"},
		succeededStep("migrate", "the schema is at version 7"),
		succeededStep("seed", "seeded"),
		succeededStep("verify", "at version 7, backup of 5 kept"))
	example.Run = 2
	example.Action = &Action{
		When:        v1alpha1.PhaseFailed,
		After:       2 * time.Second,
		Description: "failing-migration failed at its second step. Fixing the cause and rerunning from the failed step:",
		Type:        types.JSONPatchType,
		Patch: `[{"op":"replace","path":"/spec/template/spec/containers/0/env/0/value","value":"7"},` +
			`{"op":"add","path":"/spec/rerun","value":{"id":"target-7","from":"Failed"}}]`,
	}
	return example
}

func suspendedReport() Example {
	example := completedExample("suspended-report.yaml", succeededStep("collect", "collected"), succeededStep("publish", "published"))
	example.Action = &Action{
		When:        v1alpha1.PhaseSuspended,
		After:       8 * time.Second,
		Description: "suspended-report is suspended. Resuming it:",
		Type:        types.MergePatchType,
		Patch:       `{"spec":{"suspend":false}}`,
	}
	return example
}
