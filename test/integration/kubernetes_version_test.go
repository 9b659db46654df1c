package integration

import (
	"regexp"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/yardmaster/yardmaster/test/require"
)

// The tests also run on the oldest release of Kubernetes that docs/support.md supports, which lacks one kind.

// hasMutatingAdmissionPolicies reports whether the API server has the kind in the component admission-policy.
func hasMutatingAdmissionPolicies(t *testing.T) bool {
	t.Helper()
	_, err := cluster.RESTMapper().RESTMapping(schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}, "v1")
	if err != nil && !meta.IsNoMatchError(err) {
		t.Fatal(err)
	}
	return err == nil
}

// readServerVersion reads the release of Kubernetes, once.
var readServerVersion = sync.OnceValues(func() (string, error) {
	c, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", err
	}
	version, err := c.ServerVersion()
	if err != nil {
		return "", err
	}
	return version.GitVersion, nil
})

func serverVersion(t *testing.T) string {
	t.Helper()
	version, err := readServerVersion()
	require.NoError(t, err)
	return version
}

// newestRelease is the release of Kubernetes whose messages the tests compare word by word.
const newestRelease = "v1.36."

// olderMessages are the parts of messages that older releases of Kubernetes write differently, and what they have in common.
var olderMessages = []struct {
	part   *regexp.Regexp
	common string
}{
	// The value, its type, or nothing.
	{regexp.MustCompile(`Invalid value: (?:"(?:[^"\\]|\\.)*"|[^\s":]+): `), "Invalid value: "},
	{regexp.MustCompile(`Duplicate value: map\[string\]interface \{\}`), "Duplicate value: "},
	{regexp.MustCompile(`must be of type int64: "float64", <nil>: .*|must be of type integer: "number"`), "must be of type integer"},
}

// comparableMessage returns what all supported releases of Kubernetes have in common in their message about an invalid object. On
// the newest release, it returns the whole message.
func comparableMessage(t *testing.T, message string) string {
	t.Helper()
	if strings.HasPrefix(serverVersion(t), newestRelease) {
		return message
	}
	for _, older := range olderMessages {
		message = older.part.ReplaceAllString(message, older.common)
	}
	return message
}
