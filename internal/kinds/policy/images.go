package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// CheckImages returns an error for each image of a Pod that a Policy does not allow, with the container and the Policy. Every
// Policy with a list must allow every image, including the images of init containers and volumes.
func CheckImages(pod *corev1.PodSpec, selected *Selection) error {
	var errs []error
	for _, rule := range selected.images {
		for _, use := range usedImages(pod) {
			if !slices.ContainsFunc(rule.allowed, func(pattern string) bool { return matchesPattern(pattern, use.image) }) {
				errs = append(errs, fmt.Errorf("image %q of %s is not allowed by Policy %s, which allows: %s",
					use.image, use.user, rule.policy, strings.Join(rule.allowed, ", ")))
			}
		}
	}
	return errors.Join(errs...)
}

type imageRule struct {
	allowed []string
	policy  string
}

type imageUse struct{ user, image string }

func usedImages(pod *corev1.PodSpec) []imageUse {
	var all []imageUse
	add := func(kind, name, image string) {
		if image != "" {
			all = append(all, imageUse{fmt.Sprintf("%s %q", kind, name), image})
		}
	}
	for i := range pod.Containers {
		add("container", pod.Containers[i].Name, pod.Containers[i].Image)
	}
	for i := range pod.InitContainers {
		add("init container", pod.InitContainers[i].Name, pod.InitContainers[i].Image)
	}
	for i := range pod.Volumes {
		if source := pod.Volumes[i].Image; source != nil {
			add("volume", pod.Volumes[i].Name, source.Reference)
		}
	}
	return all
}

// matchesPattern reports whether a text matches a pattern, in which * matches any characters.
func matchesPattern(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	rest := text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return true
}
