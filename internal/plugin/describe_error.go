package plugin

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// notInstalledMessage is what it means that the API server does not know one of our kinds.
const notInstalledMessage = "Yardmaster is not installed in this cluster: it does not serve sequentialjobs.yardmaster.dev"

// describeError is a line for each thing that went wrong.
func describeError(err error) []string {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		var lines []string
		for _, one := range several.Unwrap() {
			lines = append(lines, describeError(one)...)
		}
		return slices.Compact(lines)
	}
	var kind *meta.NoKindMatchError
	var resource *meta.NoResourceMatchError
	if errors.As(err, &kind) && kind.GroupKind.Kind != "SequentialJob" {
		return []string{fmt.Sprintf("this cluster does not serve the kind %s of yardmaster.dev: this part of Yardmaster is not installed there", kind.GroupKind.Kind)}
	}
	if kind != nil || errors.As(err, &resource) {
		return []string{notInstalledMessage}
	}
	return []string{terminal.Sanitize(err.Error())}
}
