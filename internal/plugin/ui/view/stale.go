package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
)

const maxStaleGroups = 200

// StaleJob is a stale Job of a group.
type StaleJob struct {
	Namespace, Name, Message, Cause, Next string
	Since                                 time.Time
}

// StaleGroup are the stale Jobs of an owner for the same reason.
type StaleGroup struct {
	Namespace, Owner, Category, Reason string
	Level                              Level
	Jobs                               []StaleJob
	More                               int
}

// Stale is the page of stale Jobs.
type Stale struct {
	Summary string
	Groups  []StaleGroup
	More    int
	// Problem is why the report could not be computed.
	Problem string
	Read    time.Time
	// Commands compute the same report.
	Commands [][]string
}

// StaleCommands are the commands that compute the report: one for each namespace, or one for all namespaces.
func StaleCommands(scope *Scope) [][]string {
	return scope.commands("report", "--output=json", "--fail-on=never")
}

// readReports reads the report of a namespace, or the reports of all namespaces.
func readReports(output []byte) (*v1alpha1.JobReportList, error) {
	list, single := &v1alpha1.JobReportList{}, v1alpha1.JobReport{}
	if err := json.Unmarshal(output, &single); err != nil {
		return nil, err
	}
	if single.Kind == "JobReport" {
		list.Items = append(list.Items, single)
		return list, nil
	}
	return list, json.Unmarshal(output, list)
}

// NewStale reads the outputs of StaleCommands. The problem of a command is shown beside the outputs of other commands.
func NewStale(scope *Scope, outputs [][]byte, problem string, now time.Time) *Stale {
	s := &Stale{Read: now, Commands: scope.commands("report", "--output=wide"), Problem: problem}
	list := &v1alpha1.JobReportList{}
	for _, output := range outputs {
		reports, err := readReports(output)
		if err != nil {
			s.Problem = "the report cannot be read: " + cleanLine(err.Error())
			return s
		}
		list.Items = append(list.Items, reports.Items...)
	}
	if len(outputs) == 0 {
		return s
	}
	var total, suspicious, zombies int32
	groups := map[groupKey]*StaleGroup{}
	for i := range list.Items {
		report := &list.Items[i]
		total, suspicious, zombies = total+report.Status.Summary.Total, suspicious+report.Status.Summary.Suspicious, zombies+report.Status.Summary.Zombie
		for j := range report.Status.Findings {
			addFinding(groups, report.Namespace, &report.Status.Findings[j])
		}
	}
	s.Summary = fmt.Sprintf("%d Jobs: %d suspicious, %d zombie", total, suspicious, zombies)
	for _, group := range groups {
		s.Groups = append(s.Groups, *group)
	}
	slices.SortFunc(s.Groups, func(a, b StaleGroup) int {
		return cmp.Or(cmp.Compare(b.Level, a.Level), cmp.Compare(len(b.Jobs)+b.More, len(a.Jobs)+a.More),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Reason, b.Reason))
	})
	s.More = max(0, len(s.Groups)-maxStaleGroups)
	s.Groups = s.Groups[:len(s.Groups)-s.More]
	return s
}

type groupKey struct{ namespace, owner, category, reason string }

func addFinding(groups map[groupKey]*StaleGroup, namespace string, f *v1alpha1.JobFinding) {
	owner := "no owner"
	if f.Owner != nil {
		owner = cleanLine(f.Owner.Kind + "/" + f.Owner.Name)
	}
	key := groupKey{namespace, owner, string(f.Category), f.Reason}
	group := groups[key]
	if group == nil {
		group = &StaleGroup{Namespace: namespace, Owner: owner, Category: cleanLine(string(f.Category)), Reason: cleanLine(f.Reason), Level: LevelWaiting}
		if f.Category == v1alpha1.JobZombie {
			group.Level = LevelProblem
		}
		groups[key] = group
	}
	const maxJobs = 20
	if len(group.Jobs) == maxJobs {
		group.More++
		return
	}
	_, next := jobreport.NextStep(jobreport.Reason(f.Reason), namespace, f.Name)
	group.Jobs = append(group.Jobs, StaleJob{
		Namespace: namespace, Name: f.Name, Message: cleanLine(f.Message), Cause: cleanLine(f.Cause), Next: cleanLine(next), Since: timeOf(f.Since),
	})
}

// ExplainCommand is the command that explains why a Job is stale.
func ExplainCommand(namespace, name string) []string {
	return []string{"report", "explain", "--namespace=" + namespace, "--", name}
}
