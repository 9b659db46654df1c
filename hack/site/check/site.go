package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// site is what the check reads of a built site.
type site struct {
	files map[string]bool
	// pages by their files, such as queue/index.html.
	pages map[string]*page
	// index has the addresses of the sections that the search finds.
	index []string
}

// page is an HTML file: its anchors, its links, and the addresses from which it loads scripts, styles and images.
type page struct {
	anchors map[string]int
	links   []string
	loads   []string
	h1      int
	title   string
}

func read(directory fs.FS) (*site, error) {
	s := &site{files: map[string]bool{}, pages: map[string]*page{}}
	err := fs.WalkDir(directory, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		s.files[name] = true
		if path.Ext(name) != ".html" {
			return nil
		}
		if s.pages[name], err = readPage(directory, name); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	content, err := fs.ReadFile(directory, "search.json")
	if err != nil {
		return nil, err
	}
	var sections []struct{ URL string }
	if err := json.Unmarshal(content, &sections); err != nil {
		return nil, fmt.Errorf("reading search.json: %w", err)
	}
	for _, section := range sections {
		s.index = append(s.index, section.URL)
	}
	return s, nil
}

func readPage(directory fs.FS, name string) (*page, error) {
	file, err := directory.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	root, err := html.Parse(file)
	if err != nil {
		return nil, err
	}
	p := &page{anchors: map[string]int{}}
	for node := range root.Descendants() {
		if node.Type == html.ElementNode {
			p.add(node)
		}
	}
	return p, nil
}

func (p *page) add(node *html.Node) {
	for _, attribute := range node.Attr {
		switch {
		case attribute.Key == "id":
			p.anchors[attribute.Val]++
		case attribute.Key == "href" && node.Data == "a":
			p.links = append(p.links, attribute.Val)
		case attribute.Key == "href" && node.Data == "link", attribute.Key == "src", attribute.Key == "srcset":
			p.loads = append(p.loads, attribute.Val)
		}
	}
	switch node.Data {
	case "h1":
		p.h1++
	case "title":
		if p.title == "" && node.FirstChild != nil {
			p.title = node.FirstChild.Data
		}
	}
}

// links returns the number of links.
func (s *site) links() int {
	count := 0
	for _, p := range s.pages {
		count += len(p.links)
	}
	return count
}

// problems returns what is wrong, in the order of the pages.
func (s *site) problems() []string {
	var found []string
	for name, p := range s.pages {
		for _, problem := range slices.Concat(p.problems(), s.linkProblems(name, p)) {
			found = append(found, name+": "+problem)
		}
	}
	for _, address := range s.index {
		if problem := s.follow("index.html", address); problem != "" {
			found = append(found, fmt.Sprintf("search.json: links to %s, %s", address, problem))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// problems returns what is wrong with the page alone.
func (p *page) problems() []string {
	var found []string
	if p.h1 != 1 || p.title == "" {
		found = append(found, fmt.Sprintf("has %d headings of level 1 and the title %q; a page has one of each", p.h1, p.title))
	}
	for anchor, count := range p.anchors {
		if count > 1 {
			found = append(found, fmt.Sprintf("has %d elements with the ID %s", count, anchor))
		}
	}
	return found
}

// linkProblems returns which addresses of the page are wrong.
func (s *site) linkProblems(name string, p *page) []string {
	var found []string
	for _, link := range p.links {
		if problem := s.follow(name, link); problem != "" {
			found = append(found, fmt.Sprintf("links to %s, %s", link, problem))
		}
	}
	for _, address := range p.loads {
		if problem := s.load(name, address); problem != "" {
			found = append(found, fmt.Sprintf("loads %s, %s", address, problem))
		}
	}
	return found
}

// follow returns what is wrong with a link of the page, or nothing. Links to other sites are not followed.
func (s *site) follow(from, link string) string {
	address, err := url.Parse(link)
	switch {
	case err != nil:
		return "which is not an address"
	case address.IsAbs() || address.Host != "":
		return ""
	case path.IsAbs(address.Path):
		return "which is right only at the root of a server"
	}
	target := s.resolve(from, address.Path)
	if !s.files[target] {
		return "which does not exist"
	}
	if p, isPage := s.pages[target]; isPage && address.Fragment != "" && p.anchors[address.Fragment] == 0 {
		return "but that page has no such section"
	}
	return ""
}

// load returns what is wrong with what a page loads, or nothing.
func (s *site) load(from, address string) string {
	if strings.HasPrefix(address, "data:") {
		return ""
	}
	if parsed, err := url.Parse(address); err == nil && (parsed.IsAbs() || parsed.Host != "") {
		return "which is on another server"
	}
	return s.follow(from, address)
}

// resolve returns the file to which a relative path leads.
func (s *site) resolve(from, to string) string {
	if to == "" {
		return from
	}
	target := path.Join(path.Dir(from), to)
	if !s.files[target] {
		return path.Join(target, "index.html")
	}
	return target
}
