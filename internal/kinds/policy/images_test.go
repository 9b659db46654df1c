package policy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestEachPolicyMustAllowEachImage(t *testing.T) {
	allowing := func(images ...string) func(s *v1alpha1.PolicySpec) {
		return withLimits(v1alpha1.PolicyLimits{AllowedImages: images})
	}
	ours := newPolicy("ours", 0, allowing("registry.example/team/*", "registry.example/base:1"))
	pod := func(image string) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Image: image}}}
	}
	for title, test := range map[string]struct {
		pod      corev1.PodSpec
		policies []v1alpha1.Policy
		want     string
	}{
		"any image without a list":  {pod("anything"), []v1alpha1.Policy{newPolicy("silent", 0)}, ""},
		"a listed image":            {pod("registry.example/team/a/b:1"), []v1alpha1.Policy{ours}, ""},
		"a container without image": {pod(""), []v1alpha1.Policy{ours}, ""},
		"an image that is not listed": {
			pod("other:1"),
			[]v1alpha1.Policy{ours},
			`image "other:1" of container "worker" is not allowed by Policy ours, which allows: registry.example/team/*, registry.example/base:1`,
		},
		"each list must allow the image": {
			pod("registry.example/base:1"),
			[]v1alpha1.Policy{ours, newPolicy("strict", 0, allowing("*/team/*"))},
			`image "registry.example/base:1" of container "worker" is not allowed by Policy strict, which allows: */team/*`,
		},
		"all containers and volumes count": {
			corev1.PodSpec{
				InitContainers: []corev1.Container{{Name: "init", Image: "x"}},
				Containers:     []corev1.Container{{Name: "worker", Image: "registry.example/base:1"}, {Name: "side", Image: "y"}},
				Volumes:        []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "z"}}}},
			},
			[]v1alpha1.Policy{newPolicy("p", 0, allowing("registry.example/base:1"))},
			`image "y" of container "side" is not allowed by Policy p, which allows: registry.example/base:1
image "x" of init container "init" is not allowed by Policy p, which allows: registry.example/base:1
image "z" of volume "v" is not allowed by Policy p, which allows: registry.example/base:1`,
		},
	} {
		t.Run(title, func(t *testing.T) {
			got := ""
			if err := CheckImages(&test.pod, all(t, test.policies...)); err != nil {
				got = err.Error()
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestAsteriskMatchesAnyCharacters(t *testing.T) {
	for title, test := range map[string]struct {
		pattern, text string
		want          bool
	}{
		"the same text without an asterisk":  {"a/b:1", "a/b:1", true},
		"another text without an asterisk":   {"a/b", "a/b:1", false},
		"an asterisk at the end":             {"a/*", "a/b/c:1", true},
		"an asterisk at the beginning":       {"*:1", "a/b:1", true},
		"an asterisk in between":             {"a/*:1", "a/b/c:1", true},
		"an asterisk matches no characters":  {"a*b", "ab", true},
		"characters are not matched twice":   {"ab*bc", "abc", false},
		"several asterisks in order":         {"*x*y*", "1y2x3y4", true},
		"several asterisks in another order": {"*x*y*", "1y2x3", false},
		"two adjacent asterisks":             {"a**b", "a-b", true},
		"a similar prefix":                   {"registry.example/*", "registry.example.evil/a", false},
		"a dot matches only a dot":           {"a.b", "axb", false},
		"a single asterisk":                  {"*", "anything", true},
		"an empty text":                      {"a*", "", false},
	} {
		require.True(t, matchesPattern(test.pattern, test.text) == test.want, "%s: matches(%q, %q) is not %t", title, test.pattern, test.text, test.want)
	}
}
