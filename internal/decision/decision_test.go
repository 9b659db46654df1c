package decision

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestEarliestIgnoresZero(t *testing.T) {
	tests := map[string]struct {
		waits []time.Duration
		want  time.Duration
	}{
		"none":                        {nil, 0},
		"only zeros":                  {[]time.Duration{0, 0}, 0},
		"one wait and zeros":          {[]time.Duration{0, time.Hour, 0}, time.Hour},
		"the shortest of three waits": {[]time.Duration{time.Hour, time.Second, time.Minute}, time.Second},
		"a negative wait":             {[]time.Duration{time.Second, -time.Second}, -time.Second},
		"two equal waits":             {[]time.Duration{time.Second, time.Second}, time.Second},
		"the first wait":              {[]time.Duration{time.Second, time.Minute, 0}, time.Second},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			if got := Earliest(test.waits...); got != test.want {
				t.Errorf("earliest of %v is %s, want %s", test.waits, got, test.want)
			}
		})
	}
}

func TestATruncatedMessageIsValidTextWithinItsLimit(t *testing.T) {
	tests := map[string]struct {
		message, want string
	}{
		"a message at the limit":            {"0123456789", "0123456789"},
		"a longer message is marked":        {"0123456789a", "0123456…"},
		"a character is not split":          {"012345ää6789", "012345…"},
		"invalid bytes count as replaced":   {"01234\xff6789a", "01234…"},
		"an invalid byte alone is replaced": {"0\xff1", "0\uFFFD1"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			if got := TruncateMessage(test.message, 10); got != test.want || len(got) > 10 {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestJobsOfARunHaveTheLabelOfTheScheduleThatControlsIt(t *testing.T) {
	schedule := &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Name: "nightly", UID: "1"}}
	for title, row := range map[string]struct {
		owners []metav1.OwnerReference
		want   string
	}{
		"a Schedule":                          {ControllerReferences("Schedule", schedule), "nightly"},
		"another controller":                  {ControllerReferences("SequentialJob", schedule), ""},
		"a Schedule that does not control it": {[]metav1.OwnerReference{{APIVersion: "yardmaster.dev/v1alpha1", Kind: "Schedule", Name: "nightly"}}, ""},
		"no owner":                            {nil, ""},
	} {
		labels := map[string]string{}
		SetScheduleLabel(labels, &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelSchedule: "forged"}, OwnerReferences: row.owners}})
		if got := labels[v1alpha1.LabelSchedule]; got != row.want {
			t.Errorf("%s: label %q, want %q", title, got, row.want)
		}
	}
}
