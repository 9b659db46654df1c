package scenario

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Examples returns all examples of examples/sequentialjob in the order of the demo.
func Examples() []Example {
	return []Example{
		minimalExample(),
		etlPipeline(),
		failingMigration(),
		suspendedReport(),
		imagePullDeadline(),
		onFailureContinue(),
		indexedParallel(),
		{File: "invalid-typo.yaml", Refused: `spec.containers[1].volumeMounts[0].name: Not found: "cahce"`},
		{File: "kueue.yaml", Missing: "Kueue and a LocalQueue"},
	}
}

func minimalExample() Example {
	return Example{
		File:  "minimal.yaml",
		Phase: v1alpha1.PhaseCompleted,
		Run:   1,
		Steps: []ExpectedStep{
			{Name: "hello", Phase: v1alpha1.StepSucceeded, LogContains: "hello"},
			{Name: "goodbye", Phase: v1alpha1.StepSucceeded, LogContains: "goodbye"},
		},
	}
}

func etlPipeline() Example {
	return Example{
		File:  "etl-pipeline.yaml",
		Phase: v1alpha1.PhaseCompleted,
		Run:   1,
		Steps: []ExpectedStep{
			{Name: "extract", Phase: v1alpha1.StepSucceeded, Output: "240", LogContains: "extracted 240 orders"},
			{Name: "transform", Phase: v1alpha1.StepSucceeded, LogContains: "extract reported 240 orders, the workspace contains 240"},
			{Name: "load", Phase: v1alpha1.StepSucceeded, Output: "3 regions", LogContains: "north,1990"},
			{Name: "clean-up", Phase: v1alpha1.StepSucceeded, LogContains: "loaded 3 regions from 240 orders; left in the workspace: warehouse"},
		},
	}
}

func failingMigration() Example {
	return Example{
		File: "failing-migration.yaml",
		Action: &Action{
			When:        v1alpha1.PhaseFailed,
			After:       2 * time.Second,
			Description: "failing-migration failed at its second step. Fixing the cause and rerunning from the failed step:",
			Type:        types.JSONPatchType,
			Patch: `[{"op":"replace","path":"/spec/template/spec/containers/0/env/0/value","value":"7"},` +
				`{"op":"add","path":"/spec/rerun","value":{"id":"target-7","from":"Failed"}}]`,
		},
		Phase: v1alpha1.PhaseCompleted,
		Run:   2,
		Steps: []ExpectedStep{
			{Name: "backup", Phase: v1alpha1.StepSucceeded, Run: 1, LogContains: "backed up schema version 5"},
			{Name: "migrate", Phase: v1alpha1.StepSucceeded, LogContains: "the schema is at version 7"},
			{Name: "seed", Phase: v1alpha1.StepSucceeded, LogContains: "seeded"},
			{Name: "verify", Phase: v1alpha1.StepSucceeded, LogContains: "at version 7, backup of 5 kept"},
		},
	}
}

func suspendedReport() Example {
	return Example{
		File: "suspended-report.yaml",
		Action: &Action{
			When:        v1alpha1.PhaseSuspended,
			After:       8 * time.Second,
			Description: "suspended-report is suspended. Resuming it:",
			Type:        types.MergePatchType,
			Patch:       `{"spec":{"suspend":false}}`,
		},
		Phase: v1alpha1.PhaseCompleted,
		Run:   1,
		Steps: []ExpectedStep{
			{Name: "collect", Phase: v1alpha1.StepSucceeded, LogContains: "collected"},
			{Name: "publish", Phase: v1alpha1.StepSucceeded, LogContains: "published"},
		},
	}
}

func imagePullDeadline() Example {
	return Example{
		File:  "image-pull-deadline.yaml",
		Phase: v1alpha1.PhaseFailed,
		Run:   1,
		Steps: []ExpectedStep{
			{Name: "unreachable", Phase: v1alpha1.StepFailed},
			{Name: "never-reached", Phase: v1alpha1.StepSkipped},
			{Name: "notify", Phase: v1alpha1.StepSucceeded, LogContains: "the run has ended"},
		},
	}
}

func onFailureContinue() Example {
	return Example{
		File:  "on-failure-continue.yaml",
		Phase: v1alpha1.PhaseCompleted,
		Run:   1,
		Steps: []ExpectedStep{
			{Name: "build", Phase: v1alpha1.StepSucceeded},
			{Name: "lint", Phase: v1alpha1.StepFailed, LogContains: "line 7 is too long"},
			{Name: "package", Phase: v1alpha1.StepSucceeded, LogContains: "packaged"},
		},
	}
}

func indexedParallel() Example {
	return Example{
		File:  "indexed-parallel.yaml",
		Phase: v1alpha1.PhaseCompleted,
		Run:   1,
		Steps: []ExpectedStep{
			{Name: "render", Phase: v1alpha1.StepSucceeded, LogContains: "frame 5 of 6"},
			{Name: "assemble", Phase: v1alpha1.StepSucceeded},
		},
	}
}
