package sequentialjob

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// envOf returns the environment of a step's newest Job, without the attempt and variables that refer to other objects.
func (s *testEnv) envOf(step string) map[string]string {
	s.t.Helper()
	env := map[string]string{}
	for _, variable := range s.newestJob(step).Spec.Template.Spec.Containers[0].Env {
		if variable.ValueFrom == nil && variable.Name != envRun && variable.Name != envAttempt {
			env[variable.Name] = variable.Value
		}
	}
	return env
}

func TestTheAttemptIsInTheEnvironmentOfEveryStep(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").RerunLostJobs().Step("build").Step("test"))
	want := func(step, run, attempt string) {
		t.Helper()
		env := map[string]string{}
		pod := s.newestJob(step).Spec.Template
		for _, variable := range pod.Spec.Containers[0].Env {
			env[variable.Name] = variable.Value
			if variable.Name == envUID && variable.ValueFrom.FieldRef.FieldPath == "metadata.labels['yardmaster.dev/sequentialjob-uid']" {
				env[envUID] = pod.Labels["yardmaster.dev/sequentialjob-uid"]
			}
		}
		if diff := cmp.Diff(map[string]string{envUID: string(s.sj.UID), envRun: run, envAttempt: attempt}, env); diff != "" {
			t.Errorf("environment of step %s (-want, +got):\n%s", step, diff)
		}
	}
	want("build", "1", "1")
	s.loseJob("build")
	want("build", "1", "2")
	s.succeedStep("build")
	want("test", "1", "1")
	s.failStep("test")
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "again"}, From: "Start"}
	})
	s.reconcile()
	want("build", "2", "1")
}

func TestFinallyStepsGetTheOutcomeOfTheRun(t *testing.T) {
	tests := map[string]struct {
		sj   *testbuilder.SequentialJobBuilder
		end  func(s *testEnv)
		want map[string]string
	}{
		"completed": {
			sj:   testbuilder.SequentialJob("a", "ns").Step("build"),
			end:  func(s *testEnv) { s.succeedStep("build") },
			want: map[string]string{envStatus: "Completed", envFailedStep: "", envFailedReason: "", envFailedMessage: ""},
		},
		"failed": {
			sj:  testbuilder.SequentialJob("a", "ns").Step("build").Step("test"),
			end: func(s *testEnv) { s.failStep("build") },
			want: map[string]string{
				envStatus: "Failed", envFailedStep: "build", envFailedReason: "BackoffLimitExceeded",
				envFailedMessage: "Job has reached the specified backoff limit",
			},
		},
		"a tolerated failure": {
			sj:   testbuilder.SequentialJob("a", "ns").Step("lint", testbuilder.ContinueOnFailure()),
			end:  func(s *testEnv) { s.failStep("lint") },
			want: map[string]string{envStatus: "Completed", envFailedStep: "", envFailedReason: "", envFailedMessage: ""},
		},
		"the deadline, between two steps": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build").Step("test").ActiveDeadline(10),
			end: func(s *testEnv) {
				testbuilder.Job(s.newestJob("build")).Complete(s.now)
				s.reconcileAfter(time.Minute)
			},
			want: map[string]string{envStatus: "Failed", envFailedStep: "", envFailedReason: "DeadlineExceeded", envFailedMessage: deadlineMessage},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, test.sj.Finally("notify").Finally("cleanup"))
			test.end(s)
			if diff := cmp.Diff(test.want, s.envOf("notify")); diff != "" {
				t.Errorf("environment (-want, +got):\n%s", diff)
			}
			s.failStep("notify")
			if diff := cmp.Diff(test.want, s.envOf("cleanup")); diff != "" {
				t.Errorf("environment after another finally step failed (-want, +got):\n%s", diff)
			}
		})
	}
}

func TestStepsOfContainersDoNotGetTheOutcome(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Finally("notify"))
	if env := s.envOf("build"); len(env) != 0 {
		t.Errorf("environment %v", env)
	}
}

func TestParametersAreLiteralVariablesOfEveryStep(t *testing.T) {
	sj := testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.Env = []corev1.EnvVar{{Name: "TARGET", Value: "$(DATE)"}}
	})).Finally("notify").Obj()
	sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "DATE", Value: "2026-01-01"}, {Name: "PRICE", Value: "$(DATE) $5"}}
	s := newTestEnv(t, sj)
	s.reconcile()
	want := map[string]string{"DATE": "2026-01-01", "PRICE": "$$(DATE) $$5", "TARGET": "$(DATE)"}
	if diff := cmp.Diff(want, s.envOf("build")); diff != "" {
		t.Errorf("environment (-want, +got):\n%s", diff)
	}
	s.succeedStep("build")
	if env := s.envOf("notify"); env["DATE"] != "2026-01-01" {
		t.Errorf("environment of a finally step: %v", env)
	}
}

func TestParametersAreFixedWhenARunStarts(t *testing.T) {
	builder := testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Suspend()
	sj := builder.Obj()
	sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "DATE", Value: "1"}, {Name: "MODE", Value: "full"}}
	s := newTestEnv(t, sj)
	s.reconcile()
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Parameters[0].Value, spec.Suspend = "2", false })
	s.reconcile()
	if env := s.envOf("build"); env["DATE"] != "2" {
		t.Errorf("before the first step, a change has no effect: %v", env)
	}
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Parameters[0].Value = "3" })
	s.succeedStep("build")
	if env := s.envOf("test"); env["DATE"] != "2" {
		t.Errorf("the parameters of a run change: %v", env)
	}
	s.failStep("test")

	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "again"}, Parameters: []v1alpha1.Parameter{{Name: "DATE", Value: "4"}}}
	})
	s.reconcile()
	if env := s.envOf("test"); env["DATE"] != "4" || env["MODE"] != "full" {
		t.Errorf("environment of the rerun: %v", env)
	}
}

func TestOutcomeWithADollarSignIsLiteral(t *testing.T) {
	status := &v1alpha1.SequentialJobStatus{Steps: []v1alpha1.StepStatus{
		{Name: "build", Phase: v1alpha1.StepFailed, JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Message: "exit: $(HOME)"}}},
	}}
	sj := testbuilder.SequentialJob("a", "ns").Step("build").Finally("notify").Obj()
	sj.Status = *status
	for _, variable := range runEnvVars(sj, "notify") {
		if variable.Name == envFailedMessage && !strings.Contains(variable.Value, "$$(HOME)") {
			t.Errorf("%s is %q: Kubernetes replaces it", variable.Name, variable.Value)
		}
	}
}

func TestAStepCanSetAVariableOfTheAttemptItself(t *testing.T) {
	own := []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: envRun, Value: "nightly"}}
	var got []string
	for _, variable := range withAttempt(own, 7, 2) {
		got = append(got, variable.Name+"="+variable.Value)
	}
	if diff := cmp.Diff([]string{"A=1", "SEQUENCE_RUN=nightly", "SEQUENCE_UID=", "STEP_ATTEMPT=2"}, got); diff != "" || len(own) != 2 {
		t.Errorf("environment (-want, +got):\n%s", diff)
	}
}
