package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestEachPolicyMustAllowEachImage(t *testing.T) {
	allowing := func(images ...string) func(s *v1alpha1.PolicySpec) {
		return withLimits(v1alpha1.PolicyLimits{AllowedImages: images})
	}
	ours := newPolicy("ours", 0, allowing("registry.example/team/*", "registry.example/base:1"))
	pool := func(image string, pod corev1.PodSpec) *v1alpha1.WorkerPool {
		return &v1alpha1.WorkerPool{Spec: v1alpha1.WorkerPoolSpec{Image: image, Template: &corev1.PodTemplateSpec{Spec: pod}}}
	}
	for title, test := range map[string]struct {
		pool     *v1alpha1.WorkerPool
		policies []v1alpha1.Policy
		want     string
	}{
		"any image without a list": {pool("anything", corev1.PodSpec{}), []v1alpha1.Policy{newPolicy("silent", 0)}, ""},
		"a listed image":           {pool("registry.example/team/a/b:1", corev1.PodSpec{}), []v1alpha1.Policy{ours}, ""},
		"an image that is not listed": {
			pool("registry.example/other/a:1", corev1.PodSpec{}),
			[]v1alpha1.Policy{ours},
			`spec.image: image "registry.example/other/a:1" is not allowed by policy ours, which allows: registry.example/team/*, registry.example/base:1`,
		},
		"each list must allow the image": {
			pool("registry.example/base:1", corev1.PodSpec{}),
			[]v1alpha1.Policy{ours, newPolicy("strict", 0, allowing("*/team/*"))},
			`spec.image: image "registry.example/base:1" is not allowed by policy strict, which allows: */team/*`,
		},
		"other containers count too": {
			pool("registry.example/base:1", corev1.PodSpec{
				InitContainers: []corev1.Container{{Name: "init", Image: "x"}},
				Containers:     []corev1.Container{{Name: "worker", Image: "overridden"}, {Name: "side", Image: "y"}},
				Volumes:        []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "z"}}}},
			}),
			[]v1alpha1.Policy{newPolicy("p", 0, allowing("registry.example/base:1"))},
			`spec.template.spec.containers[1].image: image "y" is not allowed by policy p, which allows: registry.example/base:1
spec.template.spec.initContainers[0].image: image "x" is not allowed by policy p, which allows: registry.example/base:1
spec.template.spec.volumes[0].image.reference: image "z" is not allowed by policy p, which allows: registry.example/base:1`,
		},
	} {
		t.Run(title, func(t *testing.T) {
			got := ""
			if err := CheckImages(test.pool, all(t, test.policies...)); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("message (-want, +got):\n%s", diff)
			}
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
		t.Run(title, func(t *testing.T) {
			if got := matchesPattern(test.pattern, test.text); got != test.want {
				t.Errorf("matches(%q, %q) = %t, want %t", test.pattern, test.text, got, test.want)
			}
		})
	}
}
