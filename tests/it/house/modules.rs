//! The crates as their modules, read from source: what a module imports, re-exports and implements. Code that only tests see is
//! left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use quote::ToTokens as _;
use syn::visit::Visit;

use crate::edges::packages;

/// A crate's module tree.
pub(super) struct Crate {
    /// Its folder.
    pub(super) name: String,
    modules: Vec<Module>,
}

/// One file, with the modules that are written out in it.
struct Module {
    /// Path from the root of the crate.
    path: Vec<String>,
    file: PathBuf,
    syntax: syn::File,
}

/// A name that a module uses: the module and the path that it names, both from the root of the crate.
pub(super) struct Use {
    pub(super) from: Vec<String>,
    pub(super) path: Vec<String>,
    is_public: bool,
}

/// The root of the workspace.
pub(super) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

impl Crate {
    /// The crates of the product.
    pub(super) fn all() -> Result<Vec<Self>> {
        let packages = packages()?.into_iter();
        packages.map(|(_, folder)| Self::read(&folder)).collect()
    }

    fn read(folder: &Path) -> Result<Self> {
        let root = workspace().join(folder).join("src/lib.rs");
        let mut modules = Vec::new();
        read_module(&root, &root.with_file_name(""), Vec::new(), &mut modules)?;
        Ok(Self {
            name: if folder.as_os_str().is_empty() {
                "src".to_owned()
            } else {
                folder.display().to_string()
            },
            modules,
        })
    }

    /// Modules directly below the root.
    pub(super) fn top_modules(&self) -> BTreeSet<&str> {
        let all = self.modules.iter().filter_map(|module| module.path.first());
        all.map(String::as_str).collect()
    }

    /// Every name of the crate that a module uses.
    pub(super) fn uses(&self) -> Vec<Use> {
        let mut uses = Vec::new();
        for module in &self.modules {
            let mut finder = UseFinder {
                module: module.path.clone(),
                uses: &mut uses,
            };
            finder.visit_file(&module.syntax);
        }
        uses
    }

    /// Public re-exports of what is not below the module: the module, and the path.
    pub(super) fn re_exports(&self) -> Vec<(String, String)> {
        let uses = self.uses();
        let foreign = uses.iter().filter(|each| {
            each.is_public && !each.from.is_empty() && !each.path.starts_with(&each.from)
        });
        foreign
            .map(|each| (each.from.join("::"), each.path.join("::")))
            .collect()
    }

    /// Files with inherent impls, by type. Types of one name count as one.
    pub(super) fn inherent_impls(&self) -> BTreeMap<String, BTreeSet<&Path>> {
        let mut all: BTreeMap<String, BTreeSet<&Path>> = BTreeMap::new();
        for module in &self.modules {
            for item in &module.syntax.items {
                if let syn::Item::Impl(of) = item
                    && of.trait_.is_none()
                    && !is_for_tests(&of.attrs)
                    && let syn::Type::Path(of) = &*of.self_ty
                    && let Some(name) = of.path.segments.last()
                {
                    let files = all.entry(name.ident.to_string()).or_default();
                    files.insert(&module.file);
                }
            }
        }
        all
    }

    /// How often a type of each name is defined.
    pub(super) fn type_names(&self) -> BTreeMap<String, usize> {
        let mut all = BTreeMap::new();
        for item in self.modules.iter().flat_map(|module| &module.syntax.items) {
            let name = match item {
                syn::Item::Struct(of) => &of.ident,
                syn::Item::Enum(of) => &of.ident,
                syn::Item::Trait(of) => &of.ident,
                syn::Item::Type(of) => &of.ident,
                _ => continue,
            };
            *all.entry(name.to_string()).or_default() += 1;
        }
        all
    }
}

fn read_module(file: &Path, folder: &Path, path: Vec<String>, all: &mut Vec<Module>) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let syntax = syn::parse_file(&text).with_context(|| file.display().to_string())?;
    for item in &syntax.items {
        let syn::Item::Mod(module) = item else {
            continue;
        };
        if module.content.is_some() || is_for_tests(&module.attrs) {
            continue;
        }
        let name = module.ident.to_string();
        let mut below = path.clone();
        below.push(name.clone());
        let plain = folder.join(format!("{name}.rs"));
        let own_folder = folder.join(&name);
        let file = if plain.exists() {
            plain
        } else {
            own_folder.join("mod.rs")
        };
        read_module(&file, &own_folder, below, all)?;
    }
    all.push(Module {
        path,
        file: file.to_owned(),
        syntax,
    });
    Ok(())
}

/// The item is compiled for tests alone.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|own| {
        own.path().is_ident("test")
            || (own.path().is_ident("cfg")
                && own.meta.to_token_stream().to_string().contains("test"))
    })
}

struct UseFinder<'u> {
    module: Vec<String>,
    uses: &'u mut Vec<Use>,
}

impl UseFinder<'_> {
    /// Notes a path as it is written, if it is one of this crate.
    fn note(&mut self, written: &[String], is_public: bool) {
        let mut path = match written.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.module.clone(),
            _ => return,
        };
        for part in written {
            match part.as_str() {
                "crate" | "self" => {}
                "super" => {
                    path.pop();
                }
                _ => path.push(part.clone()),
            }
        }
        self.uses.push(Use {
            from: self.module.clone(),
            path,
            is_public,
        });
    }

    fn note_tree(&mut self, tree: &syn::UseTree, above: &[String], is_public: bool) {
        let with = |name: &syn::Ident| [above, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.note_tree(&path.tree, &with(&path.ident), is_public),
            syn::UseTree::Name(name) => self.note(&with(&name.ident), is_public),
            syn::UseTree::Rename(name) => self.note(&with(&name.ident), is_public),
            syn::UseTree::Glob(_) => self.note(above, is_public),
            syn::UseTree::Group(group) => {
                for each in &group.items {
                    self.note_tree(each, above, is_public);
                }
            }
        }
    }

    fn note_tokens(&mut self, tokens: proc_macro2::TokenStream) {
        let mut path: Vec<String> = Vec::new();
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Ident(name) => path.push(name.to_string()),
                proc_macro2::TokenTree::Punct(mark) if mark.as_char() == ':' => {}
                proc_macro2::TokenTree::Group(group) => {
                    self.note(&std::mem::take(&mut path), false);
                    self.note_tokens(group.stream());
                }
                _ => self.note(&std::mem::take(&mut path), false),
            }
        }
        self.note(&path, false);
    }
}

impl<'ast> Visit<'ast> for UseFinder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Mod(own) => &own.attrs,
            syn::Item::Fn(own) => &own.attrs,
            syn::Item::Impl(own) => &own.attrs,
            syn::Item::Use(own) => &own.attrs,
            _ => &Vec::new(),
        };
        if !is_for_tests(attributes) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.module.push(module.ident.to_string());
        syn::visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_public = matches!(item.vis, syn::Visibility::Public(_));
        self.note_tree(&item.tree, &[], is_public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let written = path.segments.iter().map(|part| part.ident.to_string());
        self.note(&written.collect::<Vec<_>>(), false);
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.note_tokens(item.tokens.clone());
        syn::visit::visit_macro(self, item);
    }
}
