// Package assert reports results that are not as a test needs them. The test continues.
package assert

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Equal reports how a value differs from the wanted one. what names the value.
func Equal(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want, +got):\n%s", what, diff)
	}
}
