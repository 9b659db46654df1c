package plugin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// parseTemplate parses a JSONPath template, such as {.items[*].metadata.name}.
func parseTemplate(template string) (*jsonpath.JSONPath, error) {
	parsed := jsonpath.New("output").AllowMissingKeys(true)
	if err := parsed.Parse(template); err != nil {
		return nil, fmt.Errorf("invalid JSONPath %q: %w", template, err)
	}
	return parsed, nil
}

// parsePath parses a path with or without braces and the leading dot, as kubectl does.
func parsePath(path string) (*jsonpath.JSONPath, error) {
	path = strings.TrimSuffix(strings.TrimPrefix(path, "{"), "}")
	return parseTemplate("{." + strings.TrimPrefix(path, ".") + "}")
}

func printTemplate(out io.Writer, template string, object any) error {
	parsed, err := parseTemplate(template)
	if err != nil {
		return err
	}
	decoded, err := decodeObject(object)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := parsed.Execute(&text, decoded); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	fmt.Fprintln(out, strings.TrimRight(text.String(), "\n"))
	return nil
}

// decodeObject returns an object as it is encoded: JSONPath refers to the names in JSON.
func decodeObject(object any) (any, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var decoded any
	err = json.Unmarshal(raw, &decoded)
	return decoded, err
}

// outputColumn is a column of the format custom-columns.
type outputColumn struct {
	header string
	path   *jsonpath.JSONPath
}

func parseColumns(expression string) ([]outputColumn, error) {
	var columns []outputColumn
	for column := range strings.SplitSeq(expression, ",") {
		header, path, found := strings.Cut(column, ":")
		if !found || header == "" || path == "" {
			return nil, fmt.Errorf("invalid column %q: must be HEADER:PATH, such as NAME:.metadata.name", column)
		}
		parsed, err := parsePath(path)
		if err != nil {
			return nil, err
		}
		columns = append(columns, outputColumn{header, parsed})
	}
	return columns, nil
}

// printColumns prints a row for an object, or for each item of a list.
func (o *outputOptions) printColumns(out io.Writer, object any) error {
	columns, err := parseColumns(o.expression)
	if err != nil {
		return err
	}
	decoded, err := decodeObject(object)
	if err != nil {
		return err
	}
	var rows [][]string
	if !o.noHeaders {
		var header []string
		for _, column := range columns {
			header = append(header, column.header)
		}
		rows = append(rows, header)
	}
	items := []any{decoded}
	if fields, isObject := decoded.(map[string]any); isObject {
		if listed, isList := fields["items"].([]any); isList {
			items = listed
		}
	}
	for _, item := range items {
		var row []string
		for _, column := range columns {
			row = append(row, columnText(column.path, item))
		}
		rows = append(rows, row)
	}
	return terminal.WriteLines(out, terminal.AlignColumns(rows))
}

func columnText(path *jsonpath.JSONPath, item any) string {
	var texts []string
	for _, value := range pathValues(path, item) {
		if text, isText := value.(string); isText {
			texts = append(texts, terminal.Sanitize(text))
		} else if raw, err := json.Marshal(value); err == nil {
			texts = append(texts, string(raw))
		}
	}
	if len(texts) == 0 {
		return "<none>"
	}
	return strings.Join(texts, ",")
}

// pathValues returns the values at a path; none if a part of it does not exist.
func pathValues(path *jsonpath.JSONPath, item any) []any {
	results, err := path.FindResults(item)
	if err != nil {
		return nil
	}
	var values []any
	for _, result := range results {
		for _, value := range result {
			isNil := value.Kind() == reflect.Interface && value.IsNil()
			if value.IsValid() && value.CanInterface() && !isNil {
				values = append(values, value.Interface())
			}
		}
	}
	return values
}

// sortObjects sorts objects by the value of --sort-by. Objects without a value come first.
func sortObjects[T client.Object](o *outputOptions, items []T) error {
	if o.sortBy == "" {
		return nil
	}
	path, err := parsePath(o.sortBy)
	if err != nil {
		return err
	}
	values := map[client.ObjectKey]any{}
	for _, item := range items {
		decoded, err := decodeObject(item)
		if err != nil {
			return err
		}
		if found := pathValues(path, decoded); len(found) > 0 {
			values[client.ObjectKeyFromObject(item)] = found[0]
		}
	}
	slices.SortStableFunc(items, func(a, b T) int {
		return compareValues(values[client.ObjectKeyFromObject(a)], values[client.ObjectKeyFromObject(b)])
	})
	return nil
}

// compareValues orders numbers by value and everything else as text. RFC 3339 times are in order as
// text.
func compareValues(a, b any) int {
	one, isNumber := a.(float64)
	other, areNumbers := b.(float64)
	switch {
	case isNumber && areNumbers:
		return cmp.Compare(one, other)
	case a == nil || b == nil:
		return cmp.Compare(rankOfNil(a), rankOfNil(b))
	default:
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	}
}

func rankOfNil(value any) int {
	if value == nil {
		return 0
	}
	return 1
}
