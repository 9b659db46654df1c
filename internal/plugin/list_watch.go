package plugin

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// watchRows shows the selected objects until interrupted: on a terminal as a table that is redrawn,
// otherwise as a row for each change.
func (l *listCommand[T]) watchRows(ctx context.Context, names []string) error {
	if !l.isTable() {
		return errors.New("--watch requires --output table or wide; use kubectl get --watch for other formats")
	}
	if len(names) > 1 {
		return errors.New("--watch accepts at most one NAME")
	}
	cluster, options, err := l.connectAndList(ctx, l.environment, deepCopy(l.kind.emptyList), 1)
	if err != nil {
		return err
	}
	if len(names) == 1 {
		object, err := l.kind.getObject(ctx, cluster, names[0])
		if err != nil {
			return err
		}
		options = selectSingleObject(object)
	}
	view := &rowView[T]{listCommand: l, objects: map[client.ObjectKey]T{}, printed: map[client.ObjectKey]string{}}
	return watchObjects(ctx, l.environment, cluster, view, l.kind, options...)
}

// rowView shows objects as the rows of their table.
type rowView[T client.Object] struct {
	*listCommand[T]

	objects map[client.ObjectKey]T
	printed map[client.ObjectKey]string
}

func (v *rowView[T]) applyUpdate(update follow.ObjectUpdate[T]) []render.Change {
	key := client.ObjectKeyFromObject(update.Object)
	if update.Deleted {
		delete(v.objects, key)
		delete(v.printed, key)
		return []render.Change{{Text: displayName(key, v.allNamespaces) + " was deleted"}}
	}
	v.objects[key] = update.Object
	row := v.tableLines([]T{update.Object})
	text := strings.TrimSpace(row[len(row)-1])
	if v.printed[key] == text {
		return nil
	}
	v.printed[key] = text
	return []render.Change{{Text: text}}
}

func (v *rowView[T]) renderLines(int) []string {
	objects := slices.SortedFunc(maps.Values(v.objects), func(a, b T) int { return compareNames(a, b) })
	return v.tableLines(objects)
}

func (*rowView[T]) isFinished() (bool, error) { return false, nil }

// addWideColumns adds the state of the condition Ready, which every kind has.
func addWideColumns[T client.Object](table *render.Table, items []T) {
	var ready, messages []string
	for _, item := range items {
		status, message := "-", "-"
		if condition := meta.FindStatusCondition(conditionsOf(item), v1alpha1.ConditionReady); condition != nil {
			status = string(condition.Status)
			message = orDash(terminal.Sanitize(condition.Message))
		}
		ready, messages = append(ready, status), append(messages, message)
	}
	table.AddColumn("READY", ready)
	table.AddColumn("MESSAGE", messages)
}

// conditionsOf returns the conditions in the status of an object of any of our kinds.
func conditionsOf(object client.Object) []metav1.Condition {
	switch object := object.(type) {
	case *v1alpha1.SequentialJob:
		return object.Status.Conditions
	case *v1alpha1.Queue:
		return object.Status.Conditions
	case *v1alpha1.WorkerPool:
		return object.Status.Conditions
	case *v1alpha1.AgenticSession:
		return object.Status.Conditions
	default:
		return nil
	}
}
