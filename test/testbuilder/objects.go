package testbuilder

import (
	"os"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
)

// SelectPolicies returns what these Policies specify for an object without labels.
func SelectPolicies(policies ...v1alpha1.Policy) policy.Selection {
	set, err := policy.NewSet(policies)
	if err != nil {
		panic(err)
	}
	return set.Select(nil)
}

// AllowImages returns the selection of a Policy named team that allows only these images.
func AllowImages(images ...string) policy.Selection {
	return SelectPolicies(v1alpha1.Policy{
		ObjectMeta: metav1.ObjectMeta{Name: "team"},
		Spec:       v1alpha1.PolicySpec{Limits: &v1alpha1.PolicyLimits{AllowedImages: images}},
	})
}

// BrokerSecret returns a Secret with keys and values that Queues may use.
func BrokerSecret(namespace, name string, data ...string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: map[string]string{}}
	s.Labels = map[string]string{v1alpha1.LabelBroker: "true"}
	for i := 0; i < len(data); i += 2 {
		s.StringData[data[i]] = data[i+1]
	}
	return s
}

// NumberFromEnv returns the value of an environment variable that scales a test, or the default if it is
// unset. The test fails if the value is not a positive number.
func NumberFromEnv(t *testing.T, variable string, defaultNumber int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return defaultNumber
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, not a positive number", variable, text)
	}
	return n
}
