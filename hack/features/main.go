// Command features writes the tables of docs/features.yaml into the pages, between the comments that name them:
//
//	<!-- features: NAME -->
//	<!-- end -->
package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// list is docs/features.yaml.
type list struct {
	Checked string `json:"checked"`
	Tools   []struct {
		Tool       string `json:"tool"`
		Yardmaster string `json:"yardmaster"`
		Other      string `json:"other"`
	} `json:"tools"`
	JobSystems []string   `json:"jobSystems"`
	Facts      [][]string `json:"facts"`
	Groups     []struct {
		Title    string `json:"title"`
		Features []struct {
			Name     string     `json:"name"`
			Command  string     `json:"command"`
			Page     string     `json:"page"`
			From     string     `json:"from"`
			Compared [][]string `json:"compared"`
		} `json:"features"`
	} `json:"features"`
}

func main() {
	content, err := os.ReadFile("docs/features.yaml")
	var l list
	if err == nil {
		err = yaml.UnmarshalStrict(content, &l)
	}
	for page, tables := range l.tables() {
		if err == nil {
			err = write(page, tables)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// tables returns the tables of each page by their names.
func (l *list) tables() map[string]map[string]string {
	tools := [][]string{{"Next to", "Yardmaster", "Choose the other if"}}
	for _, t := range l.Tools {
		tools = append(tools, []string{t.Tool, t.Yardmaster, t.Other})
	}
	systems := append([][]string{append([]string{""}, l.JobSystems...)}, l.Facts...)
	features := map[string]string{}
	for _, group := range l.Groups {
		rows := [][]string{{"Feature", "Command", "Page in the browser", "Coming from"}}
		for _, f := range group.Features {
			rows = append(rows, []string{f.Name, f.Command, f.Page, f.From})
			systems = append(systems, f.Compared...)
		}
		features[group.Title] = table(rows)
	}
	checked := "\nVersions and facts of other tools: " + l.Checked + ".\n"
	return map[string]map[string]string{
		"README.md":        {"tools": localLink.ReplaceAllString(table(tools)+checked, "](docs/$1")},
		"docs/features.md": features,
		"docs/client.md":   {"job systems": table(systems) + checked},
	}
}

// localLink is the beginning of a link to a page of docs.
var localLink = regexp.MustCompile(`\]\(([a-z-]+\.md)`)

func table(rows [][]string) string {
	var lines strings.Builder
	for i, row := range rows {
		lines.WriteString("|")
		for _, cell := range row {
			lines.WriteString(strings.TrimRight(" "+cell, " ") + " |")
		}
		lines.WriteString("\n")
		if i == 0 {
			lines.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	return lines.String()
}

// write writes the tables into a page, which has a place for each.
func write(page string, tables map[string]string) error {
	content, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text := string(content)
	for name, rows := range tables {
		begin := "<!-- features: " + name + " -->\n"
		before, rest, hasBegin := strings.Cut(text, begin)
		_, after, hasEnd := strings.Cut(rest, "<!-- end -->\n")
		if !hasBegin || !hasEnd {
			return fmt.Errorf("%s has no place for the table %q of docs/features.yaml", page, name)
		}
		text = before + begin + "\n" + rows + "\n<!-- end -->\n" + after
	}
	return os.WriteFile(page, []byte(text), 0o644) //nolint:gosec // a page
}
