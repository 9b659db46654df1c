package sequentialjob

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// envOf returns the environment of a step's newest Job, without the attempt and variables that refer to other objects.
func (s *testEnv) envOf(step string) map[string]string {
	env := map[string]string{}
	for _, variable := range s.newestJob(step).Spec.Template.Spec.Containers[0].Env {
		if variable.ValueFrom == nil && variable.Name != envRun && variable.Name != envAttempt {
			env[variable.Name] = variable.Value
		}
	}
	return env
}

func TestTheAttemptIsInTheEnvironmentOfEveryStep(t *testing.T) {
	s := startRun(t, sequence().RerunLostJobs().Step("build").Step("test"))
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
		assert.Equal(t, "environment of step "+step, map[string]string{envUID: string(s.sj.UID), envRun: run, envAttempt: attempt}, env)
	}
	want("build", "1", "1")
	s.pass(lose("build"))
	want("build", "1", "2")
	s.succeedStep("build")
	want("test", "1", "1")
	s.pass(fail("test"), rerun("Start"))
	want("build", "2", "1")
}

func TestFinallyStepsGetTheOutcomeOfTheRun(t *testing.T) {
	completed := map[string]string{envStatus: "Completed", envFailedStep: "", envFailedReason: "", envFailedMessage: ""}
	failedFor := func(step, reason, message string) map[string]string {
		return map[string]string{envStatus: "Failed", envFailedStep: step, envFailedReason: reason, envFailedMessage: message}
	}
	for name, test := range map[string]struct {
		scenario
		want map[string]string
	}{
		"completed": {scenario{sequence("build"), story{succeed("build")}}, completed},
		"failed": {
			scenario{sequence("build", "test"), story{fail("build")}},
			failedFor("build", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
		},
		"failed with a message that Kubernetes would expand": {
			scenario{sequence("build"), story{
				func(s *testEnv) {
					s.pods[s.newestJob("build").UID] = []corev1.Pod{testbuilder.Pod("build").Exited(3, "$(HOME)").Obj()}
				},
				fail("build"),
			}},
			failedFor("build", "BackoffLimitExceeded", "container build exited with code 3: $$(HOME)"),
		},
		"a tolerated failure": {scenario{sequence().Step("lint", testbuilder.ContinueOnFailure()), story{fail("lint")}}, completed},
		"the deadline, between two steps": {
			scenario{sequence("build", "test").ActiveDeadline(10), story{
				func(s *testEnv) { testbuilder.Job(s.newestJob("build")).Complete(s.now) }, wait(time.Minute),
			}},
			failedFor("", "DeadlineExceeded", deadlineMessage),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, test.sj.Finally("notify").Finally("cleanup"))
			env := s.envOf(s.createdSteps[0])
			require.True(t, len(env) == 0, "environment %v of a step that does not run finally", env)
			s.pass(test.story...)
			assert.Equal(t, "environment", test.want, s.envOf("notify"))
			s.failStep("notify")
			assert.Equal(t, "environment after another finally step failed", test.want, s.envOf("cleanup"))
		})
	}
}

func TestParametersAreLiteralVariablesOfEveryStep(t *testing.T) {
	sj := sequence().Step("build", testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.Env = []corev1.EnvVar{{Name: "TARGET", Value: "$(DATE)"}, {Name: envRun, Value: "nightly"}} // which replaces the number of the run
	})).Finally("notify").Obj()
	sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "DATE", Value: "2026-01-01"}, {Name: "PRICE", Value: "$(DATE) $5"}}
	s := newTestEnv(t, sj).pass(wait(0))
	assert.Equal(t, "environment", map[string]string{"DATE": "2026-01-01", "PRICE": "$$(DATE) $$5", "TARGET": "$(DATE)"}, s.envOf("build"))
	var runs []string
	for _, variable := range s.newestJob("build").Spec.Template.Spec.Containers[0].Env {
		if variable.Name == envRun {
			runs = append(runs, variable.Value)
		}
	}
	assert.Equal(t, "values of SEQUENCE_RUN", []string{"nightly"}, runs)
	s.succeedStep("build")
	assert.Equal(t, "DATE of a finally step", "2026-01-01", s.envOf("notify")["DATE"])
}

func TestParametersAreFixedWhenARunStarts(t *testing.T) {
	sj := sequence("build", "test").Suspend().Obj()
	sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "DATE", Value: "1"}, {Name: "MODE", Value: "full"}}
	parameters := func(step, date string) func(*testEnv) {
		return func(s *testEnv) {
			assert.Equal(s.t, "parameters of "+step, map[string]string{"DATE": date, "MODE": "full"}, s.envOf(step))
		}
	}
	newTestEnv(t, sj).pass(
		wait(0), edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Parameters[0].Value, spec.Suspend = "2", false }), parameters("build", "2"),
		edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Parameters[0].Value = "3" }), succeed("build"), parameters("test", "2"), fail("test"),
		edit(func(spec *v1alpha1.SequentialJobSpec) {
			spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "again"}, Parameters: []v1alpha1.Parameter{{Name: "DATE", Value: "4"}}}
		}), parameters("test", "4"),
	)
}
