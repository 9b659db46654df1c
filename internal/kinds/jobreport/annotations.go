package jobreport

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// runningLimit returns the value of the annotation that states how long a Job may run. An invalid
// value states nothing.
func runningLimit(job *batchv1.Job) (limit time.Duration, stated bool, err error) {
	value, stated := job.Annotations[v1alpha1.AnnotationReportRunningTooLong]
	if !stated {
		return 0, false, nil
	}
	limit, err = ParseDuration(value)
	return limit, err == nil, err
}

// ParseDuration parses a duration that is not negative, such as 90m, 12h or 7d. A number of days
// may precede the rest, as in 1d12h. A day has 24 hours.
func ParseDuration(value string) (time.Duration, error) {
	invalid := fmt.Errorf("invalid duration %q: use a value such as 90m, 12h or 7d", TruncateText(value, MaxCauseBytes/2))
	days, rest, found := strings.Cut(value, "d")
	if !found {
		days, rest = "0", value
	}
	count, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, invalid
	}
	duration := time.Duration(count) * oneDay
	if rest != "" {
		hours, err := time.ParseDuration(rest)
		if err != nil || hours < 0 {
			return 0, invalid
		}
		duration += hours
	}
	if duration < 0 || value == "" {
		return 0, invalid
	}
	return duration, nil
}

// FormatDuration returns the shortest text that ParseDuration reads as the same duration.
func FormatDuration(d time.Duration) string {
	if d <= 0 {
		return d.String()
	}
	text := ""
	if days := d / oneDay; days > 0 {
		text, d = fmt.Sprintf("%dd", days), d%oneDay
	}
	if d == 0 {
		return text
	}
	rest := d.String()
	if strings.HasSuffix(rest, "m0s") {
		rest = strings.TrimSuffix(rest, "0s")
	}
	if strings.HasSuffix(rest, "h0m") {
		rest = strings.TrimSuffix(rest, "0m")
	}
	return text + rest
}
