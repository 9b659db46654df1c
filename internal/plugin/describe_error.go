package plugin

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

const notInstalledMessage = "Yardmaster is not installed in this cluster: the API server does not serve sequentialjobs.yardmaster.dev"

// describeError returns a line for each joined error, without repetitions.
func describeError(err error) []string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var lines []string
		for _, one := range joined.Unwrap() {
			lines = append(lines, describeError(one)...)
		}
		return slices.Compact(lines)
	}
	var kind *meta.NoKindMatchError
	var resource *meta.NoResourceMatchError
	if errors.As(err, &kind) && kind.GroupKind.Kind != "SequentialJob" {
		return []string{fmt.Sprintf("the API server does not serve the kind %s of yardmaster.dev: install its CustomResourceDefinition", kind.GroupKind.Kind)}
	}
	if kind != nil || errors.As(err, &resource) {
		return []string{notInstalledMessage}
	}
	return []string{terminal.Sanitize(err.Error())}
}
