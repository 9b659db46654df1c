package agenticsession

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// The default resources of containers. They set all requests and limits, because a quota of the namespace may require
// them, and because they protect the node.
var (
	runnerDefaults = corev1.ResourceRequirements{
		Requests: resourceAmounts("100m", "256Mi", "1Gi"), Limits: resourceAmounts("1", "2Gi", "4Gi"),
	}
	sidecarDefaults = corev1.ResourceRequirements{
		Requests: resourceAmounts("10m", "32Mi", "64Mi"), Limits: resourceAmounts("500m", "256Mi", "1Gi"),
	}
)

func resourceAmounts(cpu, memory, storage string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse(cpu),
		corev1.ResourceMemory:           resource.MustParse(memory),
		corev1.ResourceEphemeralStorage: resource.MustParse(storage),
	}
}

// validateResources validates amounts, apart from the SessionRunner's limits.
func validateResources(r *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for part, list := range map[string]corev1.ResourceList{"requests": r.Requests, "limits": r.Limits} {
		for _, name := range sortedKeys(list) {
			if amount := list[name]; amount.Sign() < 0 {
				errs = append(errs, field.Invalid(at.Child(part).Key(string(name)), amount.String(), "must not be negative"))
			}
		}
	}
	for _, name := range sortedKeys(r.Requests) {
		request := r.Requests[name]
		if limit, limited := r.Limits[name]; limited && request.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), request.String(), "must not be greater than the limit, "+limit.String()))
		}
	}
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

// fillResources merges amounts with defaults. A limit below the default request lowers the
// request, and a request above the default limit raises the limit.
func fillResources(r, defaults corev1.ResourceRequirements) corev1.ResourceRequirements {
	filled := corev1.ResourceRequirements{Requests: maps.Clone(defaults.Requests), Limits: maps.Clone(defaults.Limits)}
	maps.Copy(filled.Requests, r.Requests)
	maps.Copy(filled.Limits, r.Limits)
	for name, limit := range filled.Limits {
		request, requested := filled.Requests[name]
		switch _, isSet := r.Limits[name]; {
		case requested && request.Cmp(limit) <= 0:
		case isSet, !requested:
			filled.Requests[name] = limit
		default:
			filled.Limits[name] = request
		}
	}
	for name, request := range filled.Requests {
		if _, limited := filled.Limits[name]; !limited {
			filled.Limits[name] = request
		}
	}
	return filled
}

// resolveResources sets the resources of a session's runner, and returns an error for each
// amount that exceeds the SessionRunner's limits.
func (r *runnerSettings) resolveResources(s *v1alpha1.AgenticSession) field.ErrorList {
	runner := r.runner
	var errs field.ErrorList
	defaults := fillResources(r.container().Resources, capResources(runnerDefaults, runner.Spec.Limits.MaxResources))
	r.resources = defaults
	if s.Spec.Resources == nil {
		return errs
	}
	filled := fillResources(*s.Spec.Resources, defaults)
	at := field.NewPath("spec", "resources")
	for _, name := range sortedKeys(filled.Limits) {
		limit := filled.Limits[name]
		allowed, named := runner.Spec.Limits.MaxResources[name]
		if !named {
			allowed, named = defaults.Limits[name]
		}
		where := at.Child("limits").Key(string(name))
		if _, isSet := s.Spec.Resources.Limits[name]; !isSet {
			where = at.Child("requests").Key(string(name))
		}
		switch {
		case !named:
			errs = append(errs, field.Forbidden(where, "SessionRunner "+runner.Name+" does not allow this resource"))
		case limit.Cmp(allowed) > 0:
			errs = append(errs, field.Invalid(where, limit.String(), "SessionRunner "+runner.Name+" allows at most "+allowed.String()))
		}
	}
	r.resources = filled
	return errs
}

func capResources(r corev1.ResourceRequirements, maxAmounts corev1.ResourceList) corev1.ResourceRequirements {
	lower := func(list corev1.ResourceList) corev1.ResourceList {
		list = maps.Clone(list)
		for name, amount := range list {
			if limit, limited := maxAmounts[name]; limited && amount.Cmp(limit) > 0 {
				list[name] = limit
			}
		}
		return list
	}
	return corev1.ResourceRequirements{Requests: lower(r.Requests), Limits: lower(r.Limits)}
}
