package scaling

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// testTime is the time of decisions in tests.
var testTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// defaultSettings returns settings with the defaults: 0 to 20 workers, concurrency 10.
func defaultSettings() Settings {
	return Settings{MaxReplicas: 20, Concurrency: 10, WaitP95: 30 * time.Second, IdleAfter: time.Minute, ScaleDown: defaultScaleDown}
}

// memoryWithRate returns a memory with a service time of one second, an arrival rate, and recommendations of zero for an hour.
func memoryWithRate(rate float64) Memory {
	return Memory{
		Rates:           Rates{BusySeconds: 100, BusyFinished: 100, ArrivalRate: rate, TrendRate: rate},
		Recommendations: Recommendations{{Start: testTime.Add(-time.Hour)}},
	}
}

// justStarted is the memory of an operator that has just started.
func justStarted(m Memory) Memory {
	m.ResumedAt = testTime
	return m
}

// observationOf returns an observation of a pool whose workers are all ready.
func observationOf(replicas int32, f *BacklogStats, m Memory, changes ...func(p *Settings)) Observation {
	in := Observation{Now: testTime, Settings: defaultSettings(), Replicas: replicas, Ready: replicas, PodStart: 10 * time.Second, Stats: f, Memory: m}
	for _, change := range changes {
		change(&in.Settings)
	}
	return in
}

// outcome is the part of a decision that most tests compare.
type outcome struct {
	Want, Applied int32
	Reason        Reason
}

func apiDuration(d time.Duration) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: d}}
}

func TestSettingsOfAutoscaling(t *testing.T) {
	for title, test := range map[string]struct {
		given v1alpha1.Autoscaling
		want  Settings
	}{
		"omitted fields have defaults": {given: v1alpha1.Autoscaling{MaxReplicas: 20}, want: defaultSettings()},
		"all fields are used": {
			given: v1alpha1.Autoscaling{
				MinReplicas: 2, MaxReplicas: 9, WaitP95: apiDuration(5 * time.Second),
				BacklogPerReplica: new(int32(7)), IdleAfter: apiDuration(0),
				ScaleUp:   &v1alpha1.ScaleRule{MaxStep: new(intstr.FromString("100%")), Period: apiDuration(15 * time.Second)},
				ScaleDown: &v1alpha1.ScaleRule{Window: apiDuration(time.Minute), MaxStep: new(intstr.FromInt32(2))},
				Fallback:  &v1alpha1.Fallback{Replicas: 4},
				Suspend:   true,
			},
			want: Settings{
				MinReplicas: 2, MaxReplicas: 9, Concurrency: 10, WaitP95: 5 * time.Second, BacklogPerReplica: 7,
				ScaleUp:   ScaleRule{Step: new(intstr.FromString("100%")), Period: 15 * time.Second},
				ScaleDown: ScaleRule{Window: time.Minute, Step: new(intstr.FromInt32(2)), Period: 10 * time.Second},
				Fallback:  &Fallback{Replicas: 4, After: time.Minute}, Suspended: true,
			},
		},
		"omitted fields of a rule have defaults": {
			given: v1alpha1.Autoscaling{MaxReplicas: 20, ScaleDown: &v1alpha1.ScaleRule{Window: apiDuration(time.Minute)}},
			want: func() Settings {
				p := defaultSettings()
				p.ScaleDown.Window = time.Minute
				return p
			}(),
		},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, test.want, NewSettings(&test.given, 10))
		})
	}
}
