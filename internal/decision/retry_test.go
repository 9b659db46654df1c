package decision

import (
	"fmt"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
)

func TestBackoffGrowsUpToItsLimit(t *testing.T) {
	for _, test := range []struct {
		retry  v1alpha1.Retry
		failed int32
		want   time.Duration
	}{
		{v1alpha1.Retry{}, 0, 10 * time.Second},
		{v1alpha1.Retry{}, 3, 80 * time.Second},
		{v1alpha1.Retry{}, 99, 10 * time.Minute},
		{v1alpha1.Retry{Backoff: v1alpha1.NewDuration(24 * time.Hour), MaxBackoff: v1alpha1.NewDuration(24 * time.Hour)}, 99, 24 * time.Hour},
		{v1alpha1.Retry{Backoff: v1alpha1.NewDuration(time.Minute), MaxBackoff: v1alpha1.NewDuration(30 * time.Second)}, 0, 30 * time.Second},
		{v1alpha1.Retry{Backoff: v1alpha1.NewDuration(time.Hour)}, 3, time.Hour},
		{v1alpha1.Retry{Factor: new(v1alpha1.Number("1.5"))}, 2, 22500 * time.Millisecond},
		{v1alpha1.Retry{Factor: new(v1alpha1.Number("1"))}, 99, 10 * time.Second},
		{v1alpha1.Retry{Factor: new(v1alpha1.Number("10"))}, 99, 10 * time.Minute},
	} {
		assert.Equal(t, fmt.Sprintf("%+v after %d failures", test.retry, test.failed), test.want, RetryBackoff(&test.retry, test.failed))
	}
}
