package workerpool

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestGracePeriodFollowsTheDrainTimeout(t *testing.T) {
	for title, test := range map[string]struct {
		drain     v1alpha1.Drain
		grace     int64
		forWorker string
	}{
		"by default":                          {v1alpha1.Drain{}, 660, "10m55s"},
		"of the spec":                         {v1alpha1.Drain{Timeout: durationSeconds(30)}, 90, "1m25s"},
		"unless it is set":                    {v1alpha1.Drain{TerminationGrace: durationSeconds(20)}, 20, "15s"},
		"but not with onTimeout Requeue":      {v1alpha1.Drain{OnTimeout: v1alpha1.DrainRequeue}, 60, "55s"},
		"and is in addition to a Sidecar too": {v1alpha1.Drain{Mode: v1alpha1.DrainSidecar}, 660, "10m55s"},
		"and in mode Signal":                  {v1alpha1.Drain{Mode: v1alpha1.DrainSignal, Timeout: durationSeconds(5 * 60)}, 360, "5m55s"},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(1)
			s.Operator.Image, s.Pool.Spec.Drain = "yardmaster:1", &test.drain
			pod := builtDeployment(t, s).Spec.Template.Spec
			consumer := append(pod.InitContainers, pod.Containers...)[0]
			i := slices.IndexFunc(consumer.Env, func(e corev1.EnvVar) bool { return e.Name == "YARDMASTER_DRAIN_TIMEOUT" })
			require.Equal(t, test.grace, *pod.TerminationGracePeriodSeconds)
			require.Equal(t, test.forWorker, consumer.Env[i].Value)
		})
	}
}

func TestAnotherDefaultOfTheGracePeriodRestartsNoWorkers(t *testing.T) {
	s := newTestPool(1)
	s.Pool.Spec.Drain = &v1alpha1.Drain{TerminationGrace: durationSeconds(60)} // the default of version 0.1
	s.withCurrentRevision(1)
	old := newFleet(s.Observation).updated.workload
	s.Revisions[0].TerminationGrace = TerminationGraceOf(&TemplateOf(old).Spec)

	s.Pool.Spec.Drain = nil
	decision := Decide(s.Observation)
	isKept := len(decision.Resizes) == 0 && !HasDrifted(decision.CurrentWorkload, old)
	require.True(t, isKept, "the revision is replaced or changed: %+v", decision.Resizes)
	progressing := meta.FindStatusCondition(decision.Status.Conditions, v1alpha1.ConditionProgressing)
	want := "evicted workers have 1m0s, less than drain.timeout: the next revision gives them 11m0s"
	require.True(t, strings.HasSuffix(progressing.Message, want), "message %q, want %q", progressing.Message, want)
	s.Pool.Spec.Version = "2"
	require.Equal(t, 11*time.Minute, TerminationGraceOf(&TemplateOf(newFleet(s.Observation).updated.workload).Spec))
}
