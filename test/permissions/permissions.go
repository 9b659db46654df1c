// Package permissions compares the permissions of a user with those on the page docs/reference/permissions.md. A permission is a line such
// as "get deployments.apps": a verb, a resource and, if it is limited to one object, its name.
package permissions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Titles of the page's sections.
const (
	WatchedNamespaces  = "Watched namespaces"
	ReportedNamespaces = "Reported namespaces"
	AllNamespaces      = "All namespaces"
	OperatorNamespace  = "The operator's namespace"
	Gateway            = "The gateway"
)

// Page has the permissions in each column of each section.
type Page map[string]map[string][]string

// ReadPage reads the page.
func ReadPage(path string) (Page, error) {
	content, err := os.ReadFile(path)
	page, section, header := Page{}, "", []string(nil)
	for line := range strings.SplitSeq(string(content), "\n") {
		if title, found := strings.CutPrefix(line, "## "); found {
			section, header = title, nil
			page[section] = map[string][]string{}
		}
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if header == nil {
			header = cells
			continue
		}
		resource := strings.ReplaceAll(strings.TrimSpace(cells[0]), "`", "")
		for i := 1; i < len(cells) && i < len(header); i++ {
			column := strings.TrimSpace(header[i])
			for verb := range strings.SplitSeq(cells[i], ",") {
				if verb = strings.TrimSpace(verb); verb != "" {
					page[section][column] = append(page[section][column], verb+" "+resource)
				}
			}
		}
	}
	return page, err
}

// Columns returns the permissions in some columns of a section. A column that the section lacks has none.
func (p Page) Columns(section string, columns ...string) (all []string) {
	for _, column := range columns {
		all = append(all, p[section][column]...)
	}
	return all
}

// Union returns the sorted union of permissions.
func Union(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// OfServiceAccount returns the permissions of a ServiceAccount in a namespace, except those of every ServiceAccount.
func OfServiceAccount(ctx context.Context, config *rest.Config, account, namespace string) ([]string, error) {
	all, err := review(ctx, config, account, namespace)
	if err != nil {
		return nil, err
	}
	everyones, err := review(ctx, config, "system:serviceaccount:default:default", namespace)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(permission string) bool { return slices.Contains(everyones, permission) }), nil
}

// Groups returns the groups of a ServiceAccount.
func Groups(account string) []string {
	namespace := strings.Split(account, ":")[2]
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
}

// review returns the permissions from a SelfSubjectRulesReview, which `kubectl auth can-i --list` prints.
func review(ctx context.Context, config *rest.Config, account, namespace string) ([]string, error) {
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: Groups(account)}
	clients, err := kubernetes.NewForConfig(as)
	if err != nil {
		return nil, err
	}
	request := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	answer, err := clients.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, request, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if answer.Status.Incomplete {
		return nil, errors.New("the answer is incomplete: " + answer.Status.EvaluationError)
	}
	var all []string
	for i := range answer.Status.ResourceRules {
		all = append(all, ruleLines(&answer.Status.ResourceRules[i])...)
	}
	for _, rule := range answer.Status.NonResourceRules {
		for _, url := range rule.NonResourceURLs {
			all = append(all, strings.Join(rule.Verbs, ",")+" "+url)
		}
	}
	return Union(all), nil
}

func ruleLines(rule *authorizationv1.ResourceRule) (all []string) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, verb := range rule.Verbs {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", verb, qualifiedResource(group, resource), name)))
				}
			}
		}
	}
	return all
}

// qualifiedResource names a resource as kubectl does, such as "deployments.apps/status".
func qualifiedResource(group, resource string) string {
	if group == "" {
		return resource
	}
	resource, subresource, found := strings.Cut(resource, "/")
	resource += "." + group
	if found {
		resource += "/" + subresource
	}
	return resource
}
