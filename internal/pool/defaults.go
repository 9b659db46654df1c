package pool

import (
	"math"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Defaults of fields that the API server does not default.
const (
	defaultProgressDeadline = 30 * time.Minute
	defaultRevisionHistory  = 3
	defaultMaxSurge         = "25%"
	defaultFailureIncrease  = 5
	defaultMinSamples       = 20
	// defaultLease is the lease of messages if the broker does not report one.
	defaultLease = 30 * time.Second
)

func durationOr(value *v1alpha1.Duration, fallback time.Duration) *v1alpha1.Duration {
	if value != nil {
		return value
	}
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: fallback}}
}

func rolloutSettings(wp *v1alpha1.WorkerPool) v1alpha1.Rollout {
	if wp.Spec.Rollout == nil {
		return v1alpha1.Rollout{}
	}
	return *wp.Spec.Rollout
}

// resolveIntOrPercent returns a number, or a percentage of the total, rounded up or down. A
// value that the API server should have refused counts as 0.
func resolveIntOrPercent(value *intstr.IntOrString, fallback string, total int32, roundUp bool) int32 {
	if value != nil && value.Type == intstr.Int {
		return max(value.IntVal, 0)
	}
	text := fallback
	if value != nil {
		text = value.StrVal
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err != nil || percent < 0 {
		return 0
	}
	part := float64(total) * float64(percent) / 100
	if roundUp {
		return int32(math.Ceil(part))
	}
	return int32(math.Floor(part))
}
