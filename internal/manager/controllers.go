package manager

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Controller is a part of the operator that can be switched off. Then it needs neither
// its CRD nor its permissions.
type Controller struct {
	// Name in --controllers.
	Name string
	// Kind it reconciles.
	Kind schema.GroupVersionKind
	// Needs are the other kinds of ours that it watches.
	Needs []schema.GroupVersionKind
	// Setup adds it to the manager.
	Setup func(mgr ctrl.Manager, o Options) error
	// Webhook adds its kind's webhook to the manager; nil if it has none.
	Webhook func(mgr ctrl.Manager) error
	// Mutates says that the webhook changes objects, and does not only refuse them.
	Mutates bool
	// Flag that must be given for it to run; empty if there is none.
	Flag string
}

// SelectControllers takes from known what the selectors ask for, as kube-controller-manager does:
// a name switches one on and -name off, whatever else is said, and * the rest on.
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

// requireFlags leaves out the controllers whose flag is not given. One that was asked for by
// name is missed.
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

// checkInstalled returns an error that names the kinds of controllers whose CRD is not
// installed. Without it their caches would wait for the kind until the start times out.
func checkInstalled(mapper meta.RESTMapper, controllers []Controller) error {
	var errs []error
	for _, c := range controllers {
		for _, kind := range append([]schema.GroupVersionKind{c.Kind}, c.Needs...) {
			_, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
			switch {
			case meta.IsNoMatchError(err):
				errs = append(errs, fmt.Errorf("controller %s needs the CustomResourceDefinition of %s, which is not "+
					"installed: install it, or leave the controller out with --controllers=*,-%s",
					c.Name, kind.GroupKind(), c.Name))
			case err != nil:
				errs = append(errs, fmt.Errorf("looking for the CustomResourceDefinition of %s: %w", kind.GroupKind(), err))
			}
		}
	}
	return errors.Join(errs...)
}
