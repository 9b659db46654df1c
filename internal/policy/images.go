package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// CheckImages returns an error for each image of a pool that a Policy does not allow, with its
// field and the Policy. Every Policy with a list must allow every image, including those of other
// containers than the worker.
func CheckImages(pool *v1alpha1.WorkerPool, selected Selection) error {
	var errs []error
	for _, p := range selected {
		allowed := policyLimits(p).AllowedImages
		if len(allowed) == 0 {
			continue
		}
		for _, use := range usedImages(pool) {
			if !slices.ContainsFunc(allowed, func(pattern string) bool { return matchesPattern(pattern, use.image) }) {
				errs = append(errs, fmt.Errorf("%s: image %q is not allowed by policy %s, which allows: %s",
					use.field, use.image, p.Name, strings.Join(allowed, ", ")))
			}
		}
	}
	return errors.Join(errs...)
}

// imageUse is an image in a field of the spec.
type imageUse struct{ field, image string }

func usedImages(pool *v1alpha1.WorkerPool) []imageUse {
	var all []imageUse
	add := func(field, image string) {
		if image != "" {
			all = append(all, imageUse{field, image})
		}
	}
	add("spec.image", pool.Spec.Image)
	if pool.Spec.Template == nil {
		return all
	}
	spec := &pool.Spec.Template.Spec
	for i := range spec.Containers {
		if c := &spec.Containers[i]; c.Name != v1alpha1.WorkerContainer || pool.Spec.Image == "" {
			add(fmt.Sprintf("spec.template.spec.containers[%d].image", i), c.Image)
		}
	}
	for i := range spec.InitContainers {
		add(fmt.Sprintf("spec.template.spec.initContainers[%d].image", i), spec.InitContainers[i].Image)
	}
	for i := range spec.Volumes {
		if source := spec.Volumes[i].Image; source != nil {
			add(fmt.Sprintf("spec.template.spec.volumes[%d].image.reference", i), source.Reference)
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
