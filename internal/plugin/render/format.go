package render

import (
	"cmp"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// nameHeader is the header above names.
const nameHeader = "NAME"

// unknownValue stands for a figure that nobody could tell. It is not 0.
const unknownValue = "-"

func formatCount[N int32 | int64](n *N) string {
	if n == nil {
		return unknownValue
	}
	return strconv.FormatInt(int64(*n), 10)
}

// formatDuration is a time as exact as is of use.
func formatDuration(d *metav1.Duration) string {
	if d == nil {
		return unknownValue
	}
	return formatRounded(d.Duration)
}

func formatRounded(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

// formatAge what has this time of creation.
func formatAge(created metav1.Time, now time.Time) string {
	if created.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(created.Time)))
}

// statusCell is the reason of the condition Ready, also before the operator has seen the object.
func statusCell(s terminal.Style, object metav1.Object, conditions []metav1.Condition) string {
	is := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	switch {
	case !object.GetDeletionTimestamp().IsZero():
		return s.Colorize(terminal.Yellow, v1alpha1.ReasonDeleting)
	case is == nil:
		return s.Colorize(terminal.Dim, "Pending")
	case is.Reason == v1alpha1.ReasonPaused:
		return s.Colorize(terminal.Yellow, is.Reason)
	case is.Status == metav1.ConditionTrue:
		return s.Colorize(terminal.Green, is.Reason)
	default:
		return s.Colorize(terminal.Red, cmp.Or(terminal.Sanitize(is.Reason), string(is.Status)))
	}
}

// table is rows below a header, with the namespace of each if there are namespaces.
func table(s terminal.Style, namespaces []string, rows [][]string) []string {
	if namespaces != nil {
		rows[0] = append([]string{"NAMESPACE"}, rows[0]...)
		for i, namespace := range namespaces {
			rows[i+1] = append([]string{namespace}, rows[i+1]...)
		}
	}
	lines := terminal.AlignColumns(rows)
	lines[0] = s.Colorize(terminal.Dim, lines[0])
	return lines
}

func namespacesOf[T metav1.Object](objects []T) []string {
	namespaces := make([]string, len(objects))
	for i, object := range objects {
		namespaces[i] = object.GetNamespace()
	}
	return namespaces
}
