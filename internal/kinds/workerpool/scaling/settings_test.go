package scaling

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

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
