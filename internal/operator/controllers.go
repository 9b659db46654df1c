package operator

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Controller is a part of the operator that can be disabled. A disabled controller needs neither its CustomResourceDefinition nor its
// permissions.
type Controller struct {
	// Name in --controllers.
	Name string
	// Kind that it reconciles.
	Kind schema.GroupVersionKind
	// Needs are the other Yardmaster kinds that it watches.
	Needs []schema.GroupVersionKind
	// Setup adds the controller to the manager.
	Setup func(mgr ctrl.Manager, o Options) error
	// Webhook adds the webhook of Kind to the manager; nil without a webhook.
	Webhook func(mgr ctrl.Manager) error
	// Mutates is true if the webhook changes objects.
	Mutates bool
	// Flag without which the controller does not run; may be empty.
	Flag string
}

// SelectControllers returns the controllers that the selectors enable, as kube-controller-manager does: a name enables a controller
// and -name disables it, with precedence over *, which enables all others.
func SelectControllers(known []Controller, selectors []string) ([]Controller, error) {
	for _, selector := range selectors {
		name := strings.TrimPrefix(selector, "-")
		if selector != "*" && !slices.Contains(controllerNames(known), name) {
			return nil, fmt.Errorf("unknown controller %q in --controllers, known are: %s",
				name, strings.Join(controllerNames(known), ", "))
		}
	}
	var selected []Controller
	for _, c := range known {
		if isSelected(selectors, c.Name) {
			selected = append(selected, c)
		}
	}
	if len(selected) == 0 {
		return nil, errors.New("--controllers leaves no controller to run, known are: " +
			strings.Join(controllerNames(known), ", "))
	}
	return selected, nil
}

// requireFlags drops the controllers whose flag is not set. It returns an error for a controller that was selected by name.
func requireFlags(selected []Controller, selectors []string, given map[string]bool) ([]Controller, error) {
	var ready []Controller
	for _, c := range selected {
		switch {
		case c.Flag == "" || given[c.Flag]:
			ready = append(ready, c)
		case slices.Contains(selectors, c.Name):
			return nil, fmt.Errorf("--controllers asks for %s, which needs --%s", c.Name, c.Flag)
		}
	}
	if len(ready) == 0 {
		return nil, errors.New("--controllers leaves no controller to run without the flags that the others need")
	}
	return ready, nil
}

func isSelected(selectors []string, name string) bool {
	switch {
	case slices.Contains(selectors, name):
		return true
	case slices.Contains(selectors, "-"+name):
		return false
	default:
		return slices.Contains(selectors, "*")
	}
}

func controllerNames(controllers []Controller) []string {
	var all []string
	for _, c := range controllers {
		all = append(all, c.Name)
	}
	return all
}

// checkInstalled returns an error with the kinds whose CustomResourceDefinition is not installed. Otherwise their caches would wait
// for the kind until the start times out.
func checkInstalled(mapper meta.RESTMapper, controllers []Controller) error {
	var errs []error
	for _, c := range controllers {
		for _, kind := range append([]schema.GroupVersionKind{c.Kind}, c.Needs...) {
			_, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
			switch {
			case meta.IsNoMatchError(err):
				errs = append(errs, fmt.Errorf("controller %s needs the CustomResourceDefinition of %s, which is not "+
					"installed: install it, or disable the controller with --controllers=*,-%s",
					c.Name, kind.GroupKind(), c.Name))
			case err != nil:
				errs = append(errs, fmt.Errorf("looking up the CustomResourceDefinition of %s: %w", kind.GroupKind(), err))
			}
		}
	}
	return errors.Join(errs...)
}

func mutates(c Controller) bool { return c.Mutates }

// mutatingAdmissionPolicy is the kind in the component admission-policy. API servers serve this version since Kubernetes 1.36.
var mutatingAdmissionPolicy = admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy")

// checkCreatorsAreRecorded returns an error if the operator would serve its webhooks without the webhook that records the creators of
// sessions, in a cluster that cannot have the policy instead: anybody could create sessions in the name of others.
func checkCreatorsAreRecorded(mapper meta.RESTMapper, o Options) error {
	if !o.Webhook.Enabled || o.Webhook.Mutating || !slices.ContainsFunc(o.Controllers, mutates) {
		return nil
	}
	_, err := mapper.RESTMapping(mutatingAdmissionPolicy.GroupKind(), mutatingAdmissionPolicy.Version)
	switch {
	case meta.IsNoMatchError(err):
		return errors.New("--mutating-webhook=false needs the kind MutatingAdmissionPolicy of Kubernetes 1.36, which this API server " +
			"does not have: nothing would record the creators of sessions. Install Yardmaster without the component admission-policy, " +
			"or the Helm chart without creatorPolicy.enabled")
	case err != nil:
		return fmt.Errorf("looking up the kind %s: %w", mutatingAdmissionPolicy.Kind, err)
	}
	return nil
}
