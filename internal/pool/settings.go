package pool

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Defaults of what the API server does not fill in.
const (
	defaultDrainTimeout     = 10 * time.Minute
	defaultTerminationGrace = time.Minute
	defaultProgressDeadline = 30 * time.Minute
	defaultRevisionHistory  = 3
	defaultMaxSurge         = "25%"
	defaultFailureIncrease  = 5
	defaultMinSamples       = 20
	// defaultLease is how long a message may be with a worker that is not heard of, if the
	// broker does not say.
	defaultLease = 30 * time.Second
)

// effectiveDrain is what holds of the drain, with all defaults.
func effectiveDrain(wp *v1alpha1.WorkerPool, effective *v1alpha1.WorkerPoolEffective) v1alpha1.Drain {
	given := &v1alpha1.Drain{}
	switch {
	case effective != nil && effective.Drain != nil:
		given = effective.Drain
	case wp.Spec.Drain != nil:
		given = wp.Spec.Drain
	}
	return v1alpha1.Drain{
		Mode:             cmp.Or(given.Mode, v1alpha1.DrainHTTP),
		Timeout:          durationOr(given.Timeout, defaultDrainTimeout),
		OnTimeout:        cmp.Or(given.OnTimeout, v1alpha1.DrainWait),
		TerminationGrace: durationOr(given.TerminationGrace, defaultTerminationGrace),
	}
}

func durationOr(given *v1alpha1.Duration, fallback time.Duration) *v1alpha1.Duration {
	if given != nil {
		return given
	}
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: fallback}}
}

func rolloutSettings(wp *v1alpha1.WorkerPool) v1alpha1.Rollout {
	if wp.Spec.Rollout == nil {
		return v1alpha1.Rollout{}
	}
	return *wp.Spec.Rollout
}

// resolveIntOrPercent is a number, or a percentage of the total, rounded up or down.
func resolveIntOrPercent(value *intstr.IntOrString, fallback string, total int32, up bool) int32 {
	if value != nil && value.Type == intstr.Int {
		return max(value.IntVal, 0)
	}
	text := fallback
	if value != nil {
		text = value.StrVal
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err != nil || percent < 0 { // the API server takes none
		return 0
	}
	part := float64(total) * float64(percent) / 100
	if up {
		return int32(math.Ceil(part))
	}
	return int32(math.Floor(part))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
